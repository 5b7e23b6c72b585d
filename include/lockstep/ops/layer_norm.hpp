// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

// (x − mean) / √(var + eps) · weight + bias, with mean and variance of each part of x along its
// last dimensions, which are `normalized_shape`; weight and bias are of that shape, or undefined.
//
// **Torch counterpart.** torch.nn.functional.layer_norm.
// **Devices and streams.** All on one device, by one kernel forward. Statistics are summed in
// double, in a fixed order.
// Half precision is computed in f32, which weight and bias are of, and the result rounded; where
// autocast is on the result is f32.
// **Backward.** Into x, weight and bias, with derivatives of its own.
// **Threads and exceptions.** A ShapeError, DtypeError or DeviceError names what does not fit.
// **Example.** `layer_norm(x, {64})` for x of shape [batch, length, 64].
Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/layer_norm.ipp>
#endif
