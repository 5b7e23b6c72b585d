// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/nn/init.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cmath>
#include <cstdint>

// What the layers with a weight and a bias have in common.
namespace lockstep::detail {

inline void check_layer_size(const char* layer, const char* what, std::int64_t size) {
  check<ValueError>(size >= 1, layer, ": expected ", what, " to be at least 1, got ", size);
}

inline void check_layer_dtype(const char* layer, Dtype dtype) {
  check<DtypeError>(dtype == Dtype::f32 || dtype == Dtype::f64, layer,
                    ": expected parameters of f32 or f64, got ", dtype);
}

// A weight [out, in, …] with torch's first values: kaiming_uniform_ with a = √5.
inline Parameter first_weight(const Shape& shape, const TensorOptions& options) {
  const Tensor weight = empty(shape, options);
  nn::init::kaiming_uniform_(weight, std::sqrt(5.0));
  return Parameter(weight);
}

// The bias [out] for such a weight, uniform in ±1/√fan_in.
inline Parameter first_bias(const Tensor& weight) {
  const Tensor bias = empty({weight.size(0)}, weight.options());
  const double bound = 1 / std::sqrt(fan_of(weight, nn::init::FanMode::fan_in));
  nn::init::uniform_(bias, -bound, bound);
  return Parameter(bias);
}

}  // namespace lockstep::detail
