// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>
#include <lockstep/tensor/walk.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

// How operands of different shapes are broadcast against each other.
namespace lockstep::detail {

// The shape to which two operands are broadcast: they are aligned at their last dimensions, and a
// size of 1 matches any other.
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

// The dimensions of a tensor of matrices before the last two, and the shape that has these and two
// more.
inline Shape batch_of(const Tensor& matrices) {
  return Shape(std::span(matrices.sizes().begin(), matrices.sizes().size() - 2));
}
inline Shape shape_of_matrices(Shape batch, std::int64_t rows, std::int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

// The strides with which `tensor` is read when broadcast to `shape`: 0 where one element stands for
// many.
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

// The shape to which both operands are broadcast, and the walk over them.
[[gnu::noinline]] inline Shape stretch(const char* operation, const Tensor& a, const Tensor& b,
                                       Walk<2>& walk) {
  const Shape shape = broadcast_shapes(operation, a.sizes(), b.sizes());
  walk = make_walk<2>(shape, {broadcast_strides(a, shape), broadcast_strides(b, shape)});
  return shape;
}

}  // namespace lockstep::detail
