// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <bitset>

// Expanding a tensor and summing over dimensions: each is the other's backward.
namespace lockstep {

// Expands a tensor to `shape` without copying: sizes of 1 grow, new dimensions are added in front,
// −1 keeps a size. Many elements of the result share memory.
//
// **Torch counterpart.** torch.Tensor.expand.
// **Backward.** The gradient is summed over the expanded dimensions.
// **Threads and exceptions.** A ShapeError if x cannot be expanded to `shape`.
inline Tensor expand(const Tensor& x, const Shape& shape) { return x.expand(shape); }

namespace detail {

using DimSet = std::bitset<Shape::kMaxDims>;

// The sum over the dimensions in `over`, divided by `divisor`, which for a mean is the number of
// elements summed. `shape` is that of the result: the kept sizes, with or without 1s between them.
// Recorded; x and the result have one floating-point dtype.
Tensor sum_dims(const Tensor& x, const DimSet& over, const Shape& shape, double divisor = 1);

// As sum_dims, for integers or booleans, in i64 and not recorded. A function of its own, since no
// derivative needs its kernels.
Tensor sum_integers(const Tensor& x, const DimSet& over, const Shape& shape);

// Sums the gradient of a broadcast operand to the operand's shape.
Tensor sum_to(const Tensor& x, const Shape& shape);

// `expand` to a shape known to fit; the tensor itself if it has that shape.
Tensor expand_to(const Tensor& x, const Shape& shape);

}  // namespace detail

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/expand.ipp>
#endif
