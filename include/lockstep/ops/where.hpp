// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/scalar.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

// The elements of `a` where the condition is true, those of `b` elsewhere.
//
// The three are stretched to a common shape. The condition is boolean; `a` and `b` are of one
// dtype, any, which a number takes.
//
// **Torch counterpart.** torch.where, without promotion between dtypes, but for that of autocast
// (ops/arithmetic.hpp).
// **Backward.** Into the operand that an element was taken from; the other one's gradient is 0
// there, whatever it is elsewhere.
// **Threads and exceptions.** A DeviceError, DtypeError or ShapeError names what does not fit.
// **Example.** `where(gt(x, 0), x, x * 0.01)`
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, Scalar b);
Tensor where(const Tensor& condition, Scalar a, const Tensor& b);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/where.ipp>
#endif
