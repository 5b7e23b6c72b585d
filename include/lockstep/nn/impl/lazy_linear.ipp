// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/nn/layer.hpp>
#include <lockstep/nn/lazy_linear.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/linear.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

namespace lockstep::nn {

LOCKSTEP_INLINE LazyLinear::LazyLinear(std::int64_t out_features, const LinearOptions& options)
    : out_features_(out_features) {
  detail::check_layer_size("LazyLinear", "out_features", out_features);
  const TensorOptions like = detail::parameter_options("LazyLinear", options.dtype, options.device);
  weight = Parameter::uninitialized(like);
  if (options.bias) bias = Parameter::uninitialized(like);
}

LOCKSTEP_INLINE Tensor LazyLinear::forward(const Tensor& x) const {
  if (weight.is_uninitialized() || bias.is_uninitialized()) initialize(x);
  return lockstep::linear(x, weight, bias);
}

LOCKSTEP_INLINE void LazyLinear::initialize(const Tensor& x) const {
  if (weight.is_uninitialized()) {
    check<ShapeError>(x.dim() > 0,
                      "LazyLinear: expected a first input of at least 1 dimension, "
                      "got one without dimensions");
    const std::int64_t in_features = x.size(-1);
    detail::check_layer_size("LazyLinear", "in_features", in_features);
    weight.set_data(detail::first_weight({out_features_, in_features}, weight.options()));
  }
  if (bias.is_uninitialized()) bias.set_data(detail::first_bias(weight));
}

}  // namespace lockstep::nn
