// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/tensor/shape.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

namespace lockstep {

LOCKSTEP_INLINE void Shape::push_back(std::int64_t size) {
  check<ShapeError>(count_ < kMaxDims, "a tensor has at most ", kMaxDims, " dimensions");
  sizes_[count_++] = size;
}

LOCKSTEP_INLINE void Shape::erase(std::size_t at) {
  std::copy(begin() + at + 1, end(), begin() + at);
  --count_;
}

LOCKSTEP_INLINE void Shape::insert(std::size_t at, std::int64_t size) {
  push_back(size);
  std::rotate(begin() + at, end() - 1, end());
}

LOCKSTEP_INLINE std::int64_t numel(const Shape& shape) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 16;
  std::int64_t count = 1;
  bool overflows = false;
  for (const std::int64_t size : shape) {
    check<ShapeError>(size >= 0, "shape ", shape, " has a negative size");
    overflows |= __builtin_mul_overflow(count, size, &count);
  }
  if (!overflows && count <= kMost) return count;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  detail::fail<ShapeError>("shape ", shape, " has more elements than memory can hold");
}

LOCKSTEP_INLINE Shape contiguous_strides(const Shape& shape) {
  Shape strides = shape;
  std::uint64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = static_cast<std::int64_t>(step);
    step *= static_cast<std::uint64_t>(std::max<std::int64_t>(shape[i], 1));
  }
  return strides;
}

LOCKSTEP_INLINE bool detail::strides_are_contiguous(const Shape& shape, const Shape& strides) {
  std::int64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

LOCKSTEP_INLINE std::optional<std::uint64_t> detail::byte_size(const Shape& shape,
                                                               std::size_t element_bytes) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::uint64_t bytes = element_bytes;
  for (const std::int64_t size : shape) {
    if (bytes > kMost / static_cast<std::uint64_t>(size)) return std::nullopt;
    bytes *= static_cast<std::uint64_t>(size);
  }
  return bytes;
}

LOCKSTEP_INLINE std::size_t wrap_dim(std::int64_t dim, std::size_t dims) {
  const auto count = static_cast<std::int64_t>(std::max<std::size_t>(dims, 1));
  check<IndexError>(dim >= -count && dim < count,
                    "Dimension out of range (expected to be in range of [", -count, ", ", count - 1,
                    "], but got ", dim, ")");
  return static_cast<std::size_t>(dim < 0 ? dim + count : dim);
}

}  // namespace lockstep
