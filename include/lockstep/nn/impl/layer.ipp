// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/nn/init.hpp>
#include <lockstep/nn/layer.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cmath>
#include <cstdint>

namespace lockstep::detail {

LOCKSTEP_INLINE void check_layer_size(const char* layer, const char* what, std::int64_t size) {
  check<ValueError>(size >= 1, layer, ": expected ", what, " to be at least 1, got ", size);
}

LOCKSTEP_INLINE TensorOptions parameter_options(const char* layer, Dtype dtype, Device device) {
  check<DtypeError>(dtype == Dtype::f32 || dtype == Dtype::f64, layer,
                    ": expected parameters of f32 or f64, got ", dtype);
  return {.dtype = dtype, .device = device};
}

LOCKSTEP_INLINE Parameter first_weight(const Shape& shape, const TensorOptions& options) {
  const Tensor weight = empty(shape, options);
  nn::init::kaiming_uniform_(weight, std::sqrt(5.0));
  return Parameter(weight);
}

LOCKSTEP_INLINE Parameter first_bias(const Tensor& weight) {
  const Tensor bias = empty({weight.size(0)}, weight.options());
  const std::int64_t fan_in = nn::init::calculate_fan_in_and_fan_out(weight).fan_in;
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
  nn::init::uniform_(bias, -bound, bound);
  return Parameter(bias);
}

}  // namespace lockstep::detail
