// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/saved.hpp>
#include <lockstep/config.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <array>

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

namespace lockstep::detail {

struct LayerNormOp {
  static constexpr const char* name = "layer_norm";
  Shape normalized_shape;
  double eps;
  Saved x = {};
  Saved weight = {};
  Saved bias = {};
  Saved rows = {};  // [2, rows]: the means, and 1 / √(variance + eps)

  Tensor forward(const Tensor& values, const Tensor& factor, const Tensor& offset);

  std::array<Tensor, 3> backward(const Backward& saved, const Tensor& grad) const;

 private:
  std::array<Tensor, 3> fused(const Backward& saved, const Tensor& grad) const;
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/layer_norm.ipp>
#endif
