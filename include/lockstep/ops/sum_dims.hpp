// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/ops/kernels/sum_kernel.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep::detail {

// The sum over the dimensions in `over`, divided by `divisor`: a mean divides by the number of
// elements summed. `shape` has the kept sizes in order, with or without 1s between them. Recorded.
Tensor sum_dims(const Tensor& x, const DimSet& over, const Shape& shape, double divisor = 1);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/sum_dims.ipp>
#endif
