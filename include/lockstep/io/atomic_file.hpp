// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep::io::detail {

// A file that appears under its name whole or not at all: it is written under a temporary name in
// the same folder and renamed by `commit`. Without a commit the temporary file is removed, and what
// had the name before is untouched.
//
// After `commit` the file survives a loss of power. It has the permissions of the one that it
// replaces, or those of any new file; a symbolic link of that name is itself replaced.
//
// **Threads and exceptions.** One thread at a time. Every failure is a DataError that names the
// file.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path)
      : path_(std::move(path)),
        folder_(path_.has_parent_path() ? path_.parent_path() : std::filesystem::path(".")) {
    if (!path_.has_filename()) fail("the path has no file name", 0);
    open_temporary();
    struct stat status {};
    if (::lstat(path_.c_str(), &status) == 0 && S_ISREG(status.st_mode)) {
      // Not every file system has permissions.
      [[maybe_unused]] const int ignored = ::fchmod(descriptor_, status.st_mode & 0777U);
    }
  }
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }

  void write(std::span<const std::byte> bytes) {
    constexpr std::size_t kMost = std::size_t{1} << 30;  // of one call; more is cut by the system
    while (!bytes.empty()) {
      const ssize_t put = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kMost));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) fail("cannot be written", errno);
      bytes = bytes.subspan(static_cast<std::size_t>(put));
    }
  }

  // The end of the writing. If only the last of its steps fails, the new file is in place, but may
  // not survive a loss of power.
  void commit() {
    if (::fsync(descriptor_) != 0) fail("cannot be written to the disk", errno);
    if (::close(std::exchange(descriptor_, -1)) != 0) fail("cannot be written", errno);
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot be replaced", errno);
    temporary_.clear();
    sync_folder();
  }

 private:
  // mkstemp would give permissions other than a new file's.
  void open_temporary() {
    static std::atomic<std::uint64_t> count = 0;
    do {
      temporary_ = folder_ / (".lockstep-" + std::to_string(::getpid()) + "-" +
                              std::to_string(count.fetch_add(1)) + ".tmp");
      descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (descriptor_ < 0 && errno == EEXIST);
    if (descriptor_ < 0) fail("cannot be created", errno);
  }

  void sync_folder() const {
    const int folder = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) fail("its folder cannot be opened", errno);
    const int error = ::fsync(folder) == 0 ? 0 : errno;
    ::close(folder);
    // EINVAL: the file system keeps folders in another way.
    if (error != 0 && error != EINVAL) fail("its folder cannot be written to the disk", error);
  }

  [[noreturn]] void fail(const char* what, int error) const {
    lockstep::detail::fail<DataError>(path_.string(), ": ", what, error != 0 ? ": " : "",
                                      error != 0 ? std::strerror(error) : "");
  }

  std::filesystem::path path_;
  std::filesystem::path folder_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
};

}  // namespace lockstep::io::detail
