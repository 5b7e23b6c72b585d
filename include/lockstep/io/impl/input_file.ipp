// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/io/input_file.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>

namespace lockstep::io::detail {

LOCKSTEP_INLINE InputFile::InputFile(std::filesystem::path path)
    : path_(std::move(path)),
      descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (!descriptor_) fail("cannot be opened: ", std::strerror(errno));
  struct stat status {};
  const bool known = ::fstat(descriptor_.get(), &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) fail("is not a regular file");
  size_ = static_cast<std::uint64_t>(status.st_size);
}

LOCKSTEP_INLINE void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  constexpr std::size_t kMost = std::size_t{1} << 30;  // for one call; the system cuts more
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor_.get(), out.data(), std::min(out.size(), kMost),
                                static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot be read at byte ", offset, ": ", std::strerror(errno));
    if (got == 0) fail("truncated: ends at byte ", offset, ", expected ", out.size(), " more");
    out = out.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

}  // namespace lockstep::io::detail
