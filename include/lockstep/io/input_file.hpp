// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/descriptor.hpp>
#include <lockstep/error.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace lockstep::io::detail {

// A regular file, readable at any offset.
//
// **Threads and exceptions.** Any number of threads may read. Every failure is a DataError that
// names the file.
class InputFile {
 public:
  // Opens by O_NONBLOCK: a pipe, which is refused, would otherwise wait for its other end.
  explicit InputFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  // The size in bytes when the file was opened.
  std::uint64_t size() const { return size_; }

  // Fills `out` with the bytes from `offset` on.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    lockstep::detail::fail<DataError>(path_.string(), ": ", parts...);
  }

  std::filesystem::path path_;
  lockstep::detail::Descriptor descriptor_;
  std::uint64_t size_ = 0;
};

}  // namespace lockstep::io::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/io/impl/input_file.ipp>
#endif
