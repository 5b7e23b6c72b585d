// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/nn/layer.hpp>
#include <lockstep/ops/linear.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

namespace lockstep::nn {

struct LinearOptions {
  bool bias = true;
  Dtype dtype = Dtype::f32;
  Device device = {};
};

// y = x · weightᵀ + bias, for x of shape [*, in]; the result is [*, out].
//
// **Torch counterpart.** torch.nn.Linear, with its initialisation: weight and bias uniform in
// ±1/√in, drawn from the default generator.
// **Threads and exceptions.** A ValueError for fewer than one input or output, a DtypeError for a
// dtype other than f32 and f64; forward throws what lockstep::linear throws.
// **Example.** nn::Linear fc{784, 512, {.bias = false}};
struct Linear : WeightAndBias {
  // weight: [out, in]; bias: [out], or absent
  Linear(std::int64_t in_features, std::int64_t out_features, const LinearOptions& options = {}) {
    detail::check_layer_size("Linear", "in_features", in_features);
    detail::check_layer_size("Linear", "out_features", out_features);
    const TensorOptions like = detail::parameter_options("Linear", options.dtype, options.device);
    weight = detail::first_weight({out_features, in_features}, like);
    if (options.bias) bias = detail::first_bias(weight);
  }

  Tensor forward(const Tensor& x) const { return lockstep::linear(x, weight, bias); }
  Tensor operator()(const Tensor& x) const { return forward(x); }
};

}  // namespace lockstep::nn
