// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

// y = x · weightᵀ + bias, for x of shape [*, in], weight [out, in], bias [out] or none: [*, out].
//
// **Torch counterpart.** torch.nn.functional.linear.
// **Devices and streams.** The operands' current stream; one call of the BLAS, or of cuBLASLt on a
// GPU, the bias within it. Half precision is multiplied in f32, and the result rounded once.
// **Backward.** Into x, weight and bias; derivatives of any order.
// **Threads and exceptions.** A ShapeError, DtypeError or DeviceError that names the two operands
// that do not fit; all are of one floating-point dtype, unless autocast is on.
// **Example.** `linear(randn({30, 5}), weight, bias)` with a weight of [2, 5] is of shape [30, 2].
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/linear.ipp>
#endif
