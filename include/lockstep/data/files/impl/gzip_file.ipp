// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/data/files/gzip_file.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::data {

LOCKSTEP_INLINE GzipFile::GzipFile(std::filesystem::path path) : path_(std::move(path)) {
  errno = 0;
  file_.reset(gzopen(path_.c_str(), "rbe"));  // e closes it in programs that start
  if (!file_) fail("cannot be opened: ", std::strerror(errno != 0 ? errno : ENOMEM));
  gzbuffer(file_.get(), 1U << 17);
}

LOCKSTEP_INLINE std::vector<std::byte> GzipFile::read(std::uint64_t count) {
  constexpr std::uint64_t kFirst = 1U << 16;
  const std::uint64_t end = position_ + count;
  std::vector<std::byte> bytes;
  while (bytes.size() < count) {
    const std::size_t before = bytes.size();
    const auto step = std::min(count - before, std::max<std::uint64_t>(kFirst, before));
    bytes.reserve(before + step);  // resize alone could take twice that
    bytes.resize(before + step);
    read(std::span(bytes).subspan(before), end);
  }
  return bytes;
}

LOCKSTEP_INLINE std::string GzipFile::read_rest() {
  std::string bytes;
  for (std::size_t end = 1U << 16;; end *= 2) {
    const std::size_t before = bytes.size();
    bytes.resize(end);
    const auto room = std::as_writable_bytes(std::span(bytes)).subspan(before);
    const std::size_t got = read_some(room, kUnknown);
    if (got == room.size()) continue;
    bytes.resize(before + got);
    return bytes;
  }
}

LOCKSTEP_INLINE void GzipFile::expect_end() {
  std::byte extra{};
  const std::uint64_t end = position_;
  if (read_some({&extra, 1}, end) != 0) fail("goes on after the ", end, " bytes expected");
}

LOCKSTEP_INLINE void GzipFile::read(std::span<std::byte> out, std::uint64_t end) {
  if (read_some(out, end) != out.size()) fail_truncated(end, "end of file");
}

LOCKSTEP_INLINE std::size_t GzipFile::read_some(std::span<std::byte> out, std::uint64_t end) {
  constexpr std::size_t kStep = 1U << 16;
  std::size_t done = 0;
  while (done < out.size()) {
    const auto step = static_cast<unsigned>(std::min(out.size() - done, kStep));
    const int got = gzread(file_.get(), out.data() + done, step);
    if (got > 0) {
      done += static_cast<std::size_t>(got);
      position_ += static_cast<std::uint64_t>(got);
    }
    if (got == static_cast<int>(step)) continue;
    int status = Z_OK;
    const char* const text = gzerror(file_.get(), &status);
    if (status == Z_OK || status == Z_STREAM_END) break;
    if (status == Z_BUF_ERROR) fail_truncated(end, text);
    if (status == Z_ERRNO) fail("cannot be read after byte ", position_, ": ", text);
    fail("corrupt after byte ", position_, " of the unpacked stream (", text, ")");
  }
  return done;
}

LOCKSTEP_INLINE void GzipFile::fail_truncated(std::uint64_t end, const char* text) const {
  if (end == kUnknown) {
    fail("truncated: ends at byte ", position_, " of the unpacked stream (", text, ")");
  }
  if (position_ == end) fail("truncated: gzip's checksum after byte ", end, " is cut off");
  fail("truncated: ends at byte ", position_, " of the unpacked stream, expected ", end, " (", text,
       ")");
}

LOCKSTEP_INLINE Tensor detail::read_elements(GzipFile& file, Dtype dtype, const Shape& shape,
                                             bool big_endian) {
  const std::size_t width = element_size(dtype);
  const std::optional<std::uint64_t> size = lockstep::detail::byte_size(shape, width);
  check<DataError>(size.has_value(), file.path().string(), ": its header gives the shape ", shape,
                   ", more than memory can hold");
  std::vector<std::byte> bytes = file.read(*size);
  file.expect_end();
  if (big_endian && width > 1) {
    for (std::byte* at = bytes.data(); at != bytes.data() + bytes.size(); at += width) {
      std::reverse(at, at + width);
    }
  }
  if (dtype == Dtype::boolean) {  // no other byte may lie in a bool
    for (std::byte& byte : bytes) byte = byte == std::byte{0} ? std::byte{0} : std::byte{1};
  }
  Tensor result = empty(shape, {.dtype = dtype});
  if (!bytes.empty()) {
    std::memcpy(lockstep::detail::write_on_host(result, dtype), bytes.data(), bytes.size());
  }
  return result;
}

}  // namespace lockstep::data
