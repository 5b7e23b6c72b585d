// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <ostream>
#include <span>
#include <vector>

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
  Shape(const std::vector<std::int64_t>& sizes) : Shape(std::span<const std::int64_t>(sizes)) {}

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

  void push_back(std::int64_t size);
  void erase(std::size_t at);
  void insert(std::size_t at, std::int64_t size);

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.count_ != b.count_) return false;
    for (std::size_t i = 0; i < a.count_; ++i) {  // std::equal would call memcmp
      if (a.sizes_[i] != b.sizes_[i]) return false;
    }
    return true;
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

// The number of elements of a shape; 1 for the empty shape. A ShapeError for a negative size, or a
// product that no memory can hold.
std::int64_t numel(const Shape& shape);

// Row-major strides, in elements. If the shape has no elements they may overflow and wrap around;
// nothing uses them then.
Shape contiguous_strides(const Shape& shape);

namespace detail {

bool strides_are_contiguous(const Shape& shape, const Shape& strides);

// The number of bytes of a shape read from a file; nothing if no memory can hold them.
std::optional<std::uint64_t> byte_size(const Shape& shape, std::size_t element_bytes);

}  // namespace detail

// `dim` counted from the front, where −1 means the last; an IndexError, in torch's words, if it is
// out of range.
std::size_t wrap_dim(std::int64_t dim, std::size_t dims);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/tensor/impl/shape.ipp>
#endif
