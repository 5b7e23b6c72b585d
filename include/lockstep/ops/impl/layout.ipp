// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/ops/layout.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lockstep::detail {

LOCKSTEP_INLINE Shape broadcast_shapes(const char* operation, const Shape& a, const Shape& b) {
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

LOCKSTEP_INLINE Shape broadcast_strides(const Tensor& tensor, const Shape& shape) {
  Shape strides = shape;
  const Shape& sizes = tensor.sizes();
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const bool missing = d + sizes.size() < shape.size();
    const std::size_t own = d + sizes.size() - shape.size();
    strides[d] = missing || (sizes[own] == 1 && shape[d] != 1) ? 0 : tensor.strides()[own];
  }
  return strides;
}

}  // namespace lockstep::detail
