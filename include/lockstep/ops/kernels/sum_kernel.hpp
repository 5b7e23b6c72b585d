// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <bitset>

namespace lockstep::detail {

using DimSet = std::bitset<Shape::kMaxDims>;

// The sum over the dimensions in `over`, divided by `divisor`; `shape` has the kept sizes in order.
// Floating-point tensors keep their dtype, integers and booleans become i64. Not recorded.
Tensor sum_over(const Tensor& x, const DimSet& over, const Shape& shape, double divisor);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/kernels/impl/sum_kernel.ipp>
#endif
