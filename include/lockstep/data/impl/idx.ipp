// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/variable.hpp>
#include <lockstep/data/files/gzip_file.hpp>
#include <lockstep/data/idx.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

namespace lockstep::data::detail {

// Numbers in idx files have their highest byte first.
template <class T>
T from_big_endian(const std::byte* bytes) {
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  static_assert(sizeof(T) == sizeof(Bits));
  Bits bits = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    bits = static_cast<Bits>(bits << 8) | std::to_integer<Bits>(bytes[i]);
  }
  return std::bit_cast<T>(bits);
}

inline Dtype idx_dtype(const GzipFile& file, unsigned code) {
  switch (code) {
    case 0x08:
      return Dtype::u8;
    case 0x0C:
      return Dtype::i32;
    case 0x0D:
      return Dtype::f32;
    case 0x0E:
      return Dtype::f64;
    case 0x09:
    case 0x0B:
      throw DataError(lockstep::detail::str(file.path().string(), ": holds numbers of ",
                                            code == 0x09 ? "8" : "16",
                                            " bits with sign, which tensors cannot hold"));
    default:
      throw DataError(lockstep::detail::str(file.path().string(), ": the idx type at byte 2 is ",
                                            code, ", expected 8, 9, 11, 12, 13 or 14"));
  }
}

struct IdxHeader {
  Dtype dtype = Dtype::u8;
  Shape shape;
  std::uint64_t bytes = 0;  // of what follows the header
};

// Reads two zero bytes, one for the type, one for the number of dimensions, and their sizes as 32
// bits each.
inline IdxHeader read_idx_header(GzipFile& file) {
  const auto name = [&file] { return file.path().string(); };
  std::array<std::byte, 4> magic{};
  file.read(magic);
  const auto part = [&magic](std::size_t i) { return std::to_integer<unsigned>(magic[i]); };
  check<DataError>(part(0) == 0 && part(1) == 0, name(),
                   ": not an idx file: starts with the bytes ", part(0), " ", part(1),
                   ", expected 0 0");
  IdxHeader header;
  header.dtype = idx_dtype(file, part(2));
  check<DataError>(part(3) <= Shape::kMaxDims, name(), ": has ", part(3),
                   " dimensions, expected at most ", Shape::kMaxDims);
  for (unsigned i = 0; i < part(3); ++i) {
    std::array<std::byte, 4> size{};
    file.read(size);
    header.shape.push_back(from_big_endian<std::uint32_t>(size.data()));
  }
  header.bytes = element_size(header.dtype);
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max() / 16;
  for (const std::int64_t size : header.shape) {
    if (size == 0) header.bytes = 0;
  }
  for (const std::int64_t size : header.shape) {
    if (header.bytes == 0) break;
    const auto factor = static_cast<std::uint64_t>(size);
    check<DataError>(header.bytes <= kMost / factor, name(), ": its header gives the shape ",
                     header.shape, ", more than memory can hold");
    header.bytes *= factor;
  }
  return header;
}

template <class T>
void unpack_big_endian(std::span<const std::byte> bytes, T* out) {
  if constexpr (sizeof(T) == 1) {
    if (!bytes.empty()) std::memcpy(out, bytes.data(), bytes.size());
  } else {
    for (std::size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
      out[i] = from_big_endian<T>(bytes.data() + i * sizeof(T));
    }
  }
}

}  // namespace lockstep::data::detail

namespace lockstep::data {

LOCKSTEP_INLINE Tensor read_idx(const std::filesystem::path& path) {
  GzipFile file(path);
  const detail::IdxHeader header = detail::read_idx_header(file);
  const std::vector<std::byte> bytes = file.read(header.bytes);
  file.expect_end();
  Tensor result = empty(header.shape, {.dtype = header.dtype});
  if (header.dtype == Dtype::u8) {
    detail::unpack_big_endian(bytes, result.mutable_data_ptr<std::uint8_t>());
  } else {
    dispatch_numeric(header.dtype, "read_idx", [&]<class T>(T) {
      detail::unpack_big_endian(bytes, result.mutable_data_ptr<T>());
    });
  }
  return result;
}

}  // namespace lockstep::data
