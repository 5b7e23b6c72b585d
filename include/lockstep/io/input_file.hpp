// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep::io::detail {

// An ordinary file, read at any place.
//
// **Threads and exceptions.** Any number of threads may read. Every failure is a DataError that
// names the file.
class InputFile {
 public:
  // O_NONBLOCK: to open a pipe, which is then refused, must not wait for its other end.
  explicit InputFile(std::filesystem::path path)
      : path_(std::move(path)),
        descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (descriptor_ < 0) fail("cannot be opened: ", std::strerror(errno));
    struct stat status {};
    const bool known = ::fstat(descriptor_, &status) == 0;
    if (!known || !S_ISREG(status.st_mode)) {
      ::close(descriptor_);
      fail("is not a regular file");
    }
    size_ = static_cast<std::uint64_t>(status.st_size);
  }
  InputFile(InputFile&& other) noexcept
      : path_(std::move(other.path_)),
        descriptor_(std::exchange(other.descriptor_, -1)),
        size_(other.size_) {}
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  const std::filesystem::path& path() const { return path_; }
  // In bytes, when it was opened.
  std::uint64_t size() const { return size_; }

  // Fills `out` with the bytes from `offset` on.
  void read(std::uint64_t offset, std::span<std::byte> out) const {
    constexpr std::size_t kMost = std::size_t{1} << 30;  // of one call; more is cut by the system
    while (!out.empty()) {
      const ssize_t got =
          ::pread(descriptor_, out.data(), std::min(out.size(), kMost), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail("cannot be read at byte ", offset, ": ", std::strerror(errno));
      if (got == 0) fail("truncated: ends at byte ", offset, ", expected ", out.size(), " more");
      out = out.subspan(static_cast<std::size_t>(got));
      offset += static_cast<std::uint64_t>(got);
    }
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    lockstep::detail::fail<DataError>(path_.string(), ": ", parts...);
  }

  std::filesystem::path path_;
  int descriptor_;
  std::uint64_t size_ = 0;
};

}  // namespace lockstep::io::detail
