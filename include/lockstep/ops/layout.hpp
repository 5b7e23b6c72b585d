// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

// How kernels walk over operands of different strides.
namespace lockstep::detail {

// The shape that two operands are stretched to: aligned at their last dimensions, a size of 1 fits
// any other.
inline Shape broadcast_shapes(const char* operation, const Shape& a, const Shape& b) {
  const std::size_t dims = std::max(a.size(), b.size());
  Shape shape = a.size() == dims ? a : b;
  for (std::size_t back = 1; back <= std::min(a.size(), b.size()); ++back) {
    const std::int64_t in_a = a[a.size() - back];
    const std::int64_t in_b = b[b.size() - back];
    check<ShapeError>(in_a == in_b || in_a == 1 || in_b == 1, operation, ": a tensor of shape ", a,
                      " and one of shape ", b, " do not fit: sizes ", in_a, " and ", in_b,
                      " differ at dimension ", dims - back, " and neither is 1");
    shape[dims - back] = in_a == 1 ? in_b : in_a;
  }
  return shape;
}

// Of a tensor of matrices, its last two dimensions: the dimensions before, and the shape with
// these.
inline Shape batch_of(const Tensor& matrices) {
  return Shape(std::span(matrices.sizes().begin(), matrices.sizes().size() - 2));
}
inline Shape shape_of_matrices(Shape batch, std::int64_t rows, std::int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

// The strides with which `tensor` is read when it is stretched to `shape`: 0 where one element
// stands for many.
inline Shape broadcast_strides(const Tensor& tensor, const Shape& shape) {
  Shape strides = shape;
  const Shape& sizes = tensor.sizes();
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const bool missing = d + sizes.size() < shape.size();
    const std::size_t own = d + sizes.size() - shape.size();
    strides[d] = missing || (sizes[own] == 1 && shape[d] != 1) ? 0 : tensor.strides()[own];
  }
  return strides;
}

// One walk over N operands: as few dimensions as their strides allow, the innermost last.
template <std::size_t N>
struct Walk {
  Shape sizes;
  std::array<Shape, N> strides;

  std::int64_t inner_size() const { return sizes.empty() ? 1 : sizes.back(); }
  std::int64_t inner_stride(std::size_t operand) const {
    return sizes.empty() ? 0 : strides[operand].back();
  }

  using Offsets = std::array<std::int64_t, N>;

  // Calls `body(offsets)` with each operand's offset for every index of the first `dims`
  // dimensions, in row-major order.
  template <class Body>
  void for_each(std::size_t dims, const Body& body) const {
    visit(
        dims,
        [](const void* to, const Offsets& offsets) { (*static_cast<const Body*>(to))(offsets); },
        &body);
  }
  // The same for all but the innermost dimension.
  template <class Body>
  void for_each_row(const Body& body) const {
    for_each(sizes.empty() ? 0 : sizes.size() - 1, body);
  }
  // The same for all but the two innermost ones: planes of `plane_rows` rows each.
  template <class Body>
  void for_each_plane(const Body& body) const {
    for_each(sizes.size() < 2 ? 0 : sizes.size() - 2, body);
  }
  std::int64_t plane_rows() const { return sizes.size() < 2 ? 1 : sizes[sizes.size() - 2]; }
  std::int64_t row_stride(std::size_t operand) const {
    return sizes.size() < 2 ? 0 : strides[operand][sizes.size() - 2];
  }

 private:
  // Out of line, so that it is compiled once for all bodies. Each call of a body is an indirect
  // one, so that a body should handle a whole row or plane.
  [[gnu::noinline]] void visit(std::size_t dims, void (*body)(const void*, const Offsets&),
                               const void* context) const {
    for (std::size_t d = 0; d < dims; ++d) {
      if (sizes[d] == 0) return;
    }
    std::array<std::int64_t, Shape::kMaxDims> index{};
    Offsets offsets{};
    while (true) {
      body(context, offsets);
      std::size_t d = dims;
      while (d > 0) {
        --d;
        for (std::size_t n = 0; n < N; ++n) offsets[n] += strides[n][d];
        if (++index[d] < sizes[d]) break;
        for (std::size_t n = 0; n < N; ++n) offsets[n] -= strides[n][d] * sizes[d];
        index[d] = 0;
        if (d == 0) return;
      }
      if (dims == 0) return;
    }
  }
};

// Drops dimensions of size 1 and joins those that every operand walks over in one go.
template <std::size_t N>
Walk<N> make_walk(const Shape& sizes, const std::array<Shape, N>& strides) {
  Walk<N> walk;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    bool joins = !walk.sizes.empty();
    for (std::size_t n = 0; n < N && joins; ++n) {
      joins = walk.strides[n].back() == strides[n][d] * sizes[d];
    }
    if (!joins) {
      walk.sizes.push_back(sizes[d]);
      for (std::size_t n = 0; n < N; ++n) walk.strides[n].push_back(strides[n][d]);
      continue;
    }
    const std::size_t last = walk.sizes.size() - 1;
    walk.sizes[last] *= sizes[d];
    for (std::size_t n = 0; n < N; ++n) walk.strides[n][last] = strides[n][d];
  }
  return walk;
}

// The shape that both operands are stretched to, and how an operation walks over them.
[[gnu::noinline]] inline Shape stretch(const char* operation, const Tensor& a, const Tensor& b,
                                       Walk<2>& walk) {
  const Shape shape = broadcast_shapes(operation, a.sizes(), b.sizes());
  walk = make_walk<2>(shape, {broadcast_strides(a, shape), broadcast_strides(b, shape)});
  return shape;
}

}  // namespace lockstep::detail
