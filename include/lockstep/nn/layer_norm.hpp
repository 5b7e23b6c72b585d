// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/nn/layer.hpp>
#include <lockstep/ops/layer_norm.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

namespace lockstep::nn {

struct LayerNormOptions {
  double eps = 1e-5;
  bool elementwise_affine = true;
  bool bias = true;
  Dtype dtype = Dtype::f32;
  Device device = {};
};

// Normalises x over its last dimensions, which are `normalized_shape`, then scales and shifts each
// element.
//
// **Torch counterpart.** torch.nn.LayerNorm.
// **Threads and exceptions.** A ValueError for an invalid size or eps, a DtypeError for a dtype
// other than f32 and f64; forward throws what lockstep::layer_norm throws.
// **Example.** nn::LayerNorm norm{64};
struct LayerNorm : WeightAndBias {
  // weight, initially 1, and bias, initially 0: normalized_shape; both may be absent
  Shape normalized_shape;
  double eps;

  explicit LayerNorm(const Shape& shape, const LayerNormOptions& options = {})
      : normalized_shape(shape), eps(options.eps) {
    check<ValueError>(!shape.empty(), "LayerNorm: expected normalized_shape to have a dimension");
    for (const std::int64_t size : shape) {
      detail::check_layer_size("LayerNorm", "each size of normalized_shape", size);
    }
    const TensorOptions like =
        detail::parameter_options("LayerNorm", options.dtype, options.device);
    check<ValueError>(options.eps >= 0, "LayerNorm: expected an eps of at least 0, got ",
                      options.eps);
    if (!options.elementwise_affine) return;
    weight = Parameter(ones(shape, like));
    if (options.bias) bias = Parameter(zeros(shape, like));
  }

  explicit LayerNorm(std::int64_t size, const LayerNormOptions& options = {})
      : LayerNorm(Shape{size}, options) {}

  Tensor forward(const Tensor& x) const {
    return layer_norm(x, normalized_shape, weight, bias, eps);
  }
  Tensor operator()(const Tensor& x) const { return forward(x); }
};

}  // namespace lockstep::nn
