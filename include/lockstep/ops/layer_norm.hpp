// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

// (x − mean) / √(var + eps) · weight + bias, with mean and variance over the last dimensions of x,
// which are `normalized_shape`; weight and bias have that shape, or are undefined.
//
// **Torch counterpart.** torch.nn.functional.layer_norm.
// **Devices and streams.** All tensors are on one device. Statistics are summed in double, in a
// fixed order. Half precision is computed in f32, which is the dtype of weight and bias then, and
// the result is rounded; with autocast on it is f32.
// **Backward.** Gradients of x, weight and bias; derivatives of any order.
// **Threads and exceptions.** A ShapeError, DtypeError or DeviceError names what does not match.
// **Example.** `layer_norm(x, {64})` for x of shape [batch, length, 64].
Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/layer_norm.ipp>
#endif
