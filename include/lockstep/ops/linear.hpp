// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

// y = x · weightᵀ + bias for x of shape [*, in], weight [out, in] and bias [out] or none; y is [*,
// out].
//
// **Torch counterpart.** torch.nn.functional.linear.
// **Devices and streams.** The operands' current stream, by the BLAS or on a GPU by cuBLASLt. Half
// precision is multiplied in f32, and the result rounded once.
// **Backward.** Gradients of x, weight and bias; derivatives of any order.
// **Threads and exceptions.** A ShapeError, DtypeError or DeviceError names the two operands that
// do not match; all are of one floating-point dtype, unless autocast is on.
// **Example.** `linear(randn({30, 5}), weight, bias)` with a weight of [2, 5] is of shape [30, 2].
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/linear.ipp>
#endif
