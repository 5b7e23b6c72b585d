// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/atomic_file.hpp>
#include <lockstep/autograd/variable.hpp>
#include <lockstep/data/files/gzip_file.hpp>
#include <lockstep/data/files/npy_header.hpp>
#include <lockstep/data/npy.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::data::detail {

static_assert(std::endian::native == std::endian::little,
              "lockstep: .npy files are read as they are");

inline constexpr std::string_view kNpyMagic = "\x93NUMPY";

inline NpyHeader read_npy_header(GzipFile& file) {
  const std::string name = file.path().string();
  std::array<std::byte, 8> start{};
  file.read(start);
  check<DataError>(std::memcmp(start.data(), kNpyMagic.data(), kNpyMagic.size()) == 0, name,
                   ": not a .npy file: does not start with \\x93NUMPY");
  const auto version = std::to_integer<unsigned>(start[6]);
  check<DataError>(version >= 1 && version <= 3, name, ": is of version ", version, ".",
                   std::to_integer<unsigned>(start[7]), " of the format, expected 1, 2 or 3");
  std::array<std::byte, 4> size_bytes{};
  file.read(std::span(size_bytes).first(version == 1 ? 2 : 4));
  const auto size = std::bit_cast<std::uint32_t>(size_bytes);
  constexpr std::uint32_t kMost = 1U << 16;  // NumPy itself refuses more than 10,000
  check<DataError>(size <= kMost, name, ": its header is said to have ", size, " bytes, more than ",
                   kMost);
  std::string text(size, '\0');
  file.read(std::as_writable_bytes(std::span(text)));
  return NpyHeaderParser(text, name).parse();
}

// The elements in row-major order, of a file in column-major order.
inline Tensor from_fortran_order(const Tensor& stored) {
  Shape strides = stored.sizes();
  std::reverse(strides.begin(), strides.end());
  strides = contiguous_strides(strides);
  std::reverse(strides.begin(), strides.end());
  return lockstep::detail::packed(lockstep::detail::make_view(stored, stored.sizes(), strides, 0));
}

}  // namespace lockstep::data::detail

namespace lockstep::data {

LOCKSTEP_INLINE Tensor read_npy(const std::filesystem::path& path) {
  GzipFile file(path);
  const detail::NpyHeader header = detail::read_npy_header(file);
  const Tensor stored = detail::read_elements(file, header.dtype, header.shape, header.big_endian);
  return header.fortran_order ? detail::from_fortran_order(stored) : stored;
}

LOCKSTEP_INLINE void write_npy(const std::filesystem::path& path, const Tensor& tensor) {
  const Tensor host = lockstep::detail::contiguous_on_host(tensor);
  std::string header = detail::npy_header(tensor.dtype(), tensor.sizes());
  // NumPy leaves room for a first dimension that grows to 21 digits, and what follows the header
  // begins at a multiple of 64.
  constexpr std::size_t kPrefix = 10;
  if (tensor.dim() > 0) header.append(21 - std::to_string(tensor.size(0)).size(), ' ');
  header.append(64 - (kPrefix + header.size() + 1) % 64, ' ').push_back('\n');

  std::string start(detail::kNpyMagic);
  start += {'\x01', '\0', static_cast<char>(header.size() & 0xFFU),
            static_cast<char>(header.size() >> 8U)};
  lockstep::detail::AtomicFile file(path);
  file.write(std::as_bytes(std::span(start)));
  file.write(std::as_bytes(std::span(header)));
  file.write(lockstep::detail::host_bytes(host));
  file.commit();
}

}  // namespace lockstep::data
