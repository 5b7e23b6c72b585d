// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <bitset>

// Stretching a tensor and summing it up again: each the other's backward.
namespace lockstep {

// The tensor stretched to `shape` without copying: sizes of 1 grow, new dimensions come in front,
// −1 keeps a size. Many elements of the result are one element in memory.
//
// **Torch counterpart.** torch.Tensor.expand.
// **Backward.** The gradient is summed over the stretched dimensions.
// **Threads and exceptions.** A ShapeError if x cannot be stretched to `shape`.
inline Tensor expand(const Tensor& x, const Shape& shape) { return x.expand(shape); }

namespace detail {

using DimSet = std::bitset<Shape::kMaxDims>;

// The sum over the dimensions in `over`, divided by `divisor`: a mean divides by the number of
// elements summed. `shape` has the kept sizes in order, with or without 1s between them. Recorded;
// x has a floating-point dtype, which the result has too.
Tensor sum_dims(const Tensor& x, const DimSet& over, const Shape& shape, double divisor = 1);

// The sums of integers or booleans, in i64, as sum_dims has them; not recorded. Apart from it,
// since no derivative needs its kernels.
Tensor sum_integers(const Tensor& x, const DimSet& over, const Shape& shape);

// Sums a gradient of a broadcast operation to the shape of an operand.
Tensor sum_to(const Tensor& x, const Shape& shape);

// `expand` to a shape that fits; the tensor as it is where it has that shape.
Tensor expand_to(const Tensor& x, const Shape& shape);

}  // namespace detail

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/expand.ipp>
#endif
