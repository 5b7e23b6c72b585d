// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <ostream>
#include <span>

namespace lockstep {

// The sizes (or strides) of a tensor: a short vector of int64 that never allocates, printed as
// torch prints it: [30, 5].
//
// **Torch counterpart.** torch.Size. At most kMaxDims dimensions.
class Shape {
 public:
  static constexpr std::size_t kMaxDims = 8;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes)
      : Shape(std::span<const std::int64_t>(sizes.begin(), sizes.size())) {}
  Shape(std::span<const std::int64_t> sizes) {
    for (const std::int64_t size : sizes) push_back(size);
  }

  std::size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  std::int64_t* begin() { return sizes_.data(); }
  std::int64_t* end() { return sizes_.data() + count_; }
  const std::int64_t* begin() const { return sizes_.data(); }
  const std::int64_t* end() const { return sizes_.data() + count_; }
  std::int64_t& operator[](std::size_t i) { return sizes_[i]; }
  std::int64_t operator[](std::size_t i) const { return sizes_[i]; }
  std::int64_t front() const { return sizes_[0]; }
  std::int64_t back() const { return sizes_[count_ - 1]; }

  void push_back(std::int64_t size) {
    check<ShapeError>(count_ < kMaxDims, "a tensor has at most ", kMaxDims, " dimensions");
    sizes_[count_++] = size;
  }
  void erase(std::size_t at) {
    std::copy(begin() + at + 1, end(), begin() + at);
    --count_;
  }
  void insert(std::size_t at, std::int64_t size) {
    push_back(size);
    std::rotate(begin() + at, end() - 1, end());
  }

  friend bool operator==(const Shape& a, const Shape& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  friend std::ostream& operator<<(std::ostream& out, const Shape& shape) {
    out << '[';
    for (std::size_t i = 0; i < shape.size(); ++i) out << (i == 0 ? "" : ", ") << shape[i];
    return out << ']';
  }

 private:
  std::array<std::int64_t, kMaxDims> sizes_{};
  std::size_t count_ = 0;
};

// The number of elements of a shape; 1 for the empty shape. A negative size, or a product that no
// memory can hold, is a ShapeError.
inline std::int64_t numel(const Shape& shape) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 16;
  std::int64_t count = 1;
  bool empty = false;
  for (const std::int64_t size : shape) {
    check<ShapeError>(size >= 0, "shape ", shape, " has a negative size");
    empty = empty || size == 0;
  }
  if (empty) return 0;
  for (const std::int64_t size : shape) {
    const bool overflows = __builtin_mul_overflow(count, size, &count);
    check<ShapeError>(!overflows && count <= kMost, "shape ", shape,
                      " has more elements than memory can hold");
  }
  return count;
}

// Row-major strides, in elements. A shape without elements may have sizes whose product no number
// holds; its strides are never used, and wrap around.
inline Shape contiguous_strides(const Shape& shape) {
  Shape strides = shape;
  std::uint64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = static_cast<std::int64_t>(step);
    step *= static_cast<std::uint64_t>(std::max<std::int64_t>(shape[i], 1));
  }
  return strides;
}

// `dim` counted from the front, where −1 means the last; out of range is an IndexError in torch's
// words.
inline std::size_t wrap_dim(std::int64_t dim, std::size_t dims) {
  const auto count = static_cast<std::int64_t>(std::max<std::size_t>(dims, 1));
  check<IndexError>(dim >= -count && dim < count,
                    "Dimension out of range (expected to be in range of [", -count, ", ", count - 1,
                    "], but got ", dim, ")");
  return static_cast<std::size_t>(dim < 0 ? dim + count : dim);
}

}  // namespace lockstep
