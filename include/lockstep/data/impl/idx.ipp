// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/variable.hpp>
#include <lockstep/data/files/gzip_file.hpp>
#include <lockstep/data/idx.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep::data::detail {

inline Dtype idx_dtype(const GzipFile& file, unsigned code) {
  if (code == 0x08) return Dtype::u8;
  if (code == 0x0C) return Dtype::i32;
  if (code == 0x0D) return Dtype::f32;
  if (code == 0x0E) return Dtype::f64;
  const std::string name = file.path().string();
  check<DataError>(code != 0x09 && code != 0x0B, name, ": holds numbers of ",
                   code == 0x09 ? "8" : "16", " bits with sign, which tensors cannot hold");
  lockstep::detail::fail<DataError>(name, ": the idx type at byte 2 is ", code,
                                    ", expected 8, 9, 11, 12, 13 or 14");
}

}  // namespace lockstep::data::detail

namespace lockstep::data {

// A header is two zero bytes, one byte for the type, one for the number of dimensions, and their
// sizes as 32-bit numbers. All numbers are big-endian.
LOCKSTEP_INLINE Tensor read_idx(const std::filesystem::path& path) {
  GzipFile file(path);
  std::array<std::byte, 4> magic{};
  file.read(magic);
  const auto part = [&magic](std::size_t i) { return std::to_integer<unsigned>(magic[i]); };
  check<DataError>(part(0) == 0 && part(1) == 0, path.string(),
                   ": not an idx file: starts with the bytes ", part(0), " ", part(1),
                   ", expected 0 0");
  const Dtype dtype = detail::idx_dtype(file, part(2));
  check<DataError>(part(3) <= Shape::kMaxDims, path.string(), ": has ", part(3),
                   " dimensions, expected at most ", Shape::kMaxDims);
  Shape shape;
  for (unsigned i = 0; i < part(3); ++i) {
    std::array<std::byte, 4> size{};
    file.read(size);
    std::reverse(size.begin(), size.end());
    shape.push_back(std::bit_cast<std::uint32_t>(size));
  }
  return detail::read_elements(file, dtype, shape, true);
}

}  // namespace lockstep::data
