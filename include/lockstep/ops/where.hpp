// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/scalar.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

// The elements of `a` where the condition is true, else those of `b`.
//
// The three are broadcast against each other. The condition is boolean; `a` and `b` have the same
// dtype, any, to which a number is converted.
//
// **Torch counterpart.** torch.where, without promotion between dtypes except autocast's
// (ops/arithmetic.hpp).
// **Backward.** The gradient goes to the operand from which an element was taken; the other's is
// exactly 0 there.
// **Threads and exceptions.** A DeviceError, DtypeError or ShapeError names what does not match.
// **Example.** `where(gt(x, 0), x, x * 0.01)`
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, Scalar b);
Tensor where(const Tensor& condition, Scalar a, const Tensor& b);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/where.ipp>
#endif
