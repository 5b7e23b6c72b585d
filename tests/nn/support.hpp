// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/module/parameters.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cmath>
#include <string>
#include <vector>

#include "support/expect_error.hpp"

namespace lockstep::testing {

using Values = std::vector<double>;
using Names = std::vector<std::string>;

// A tensor of f32 with these values.
inline Tensor f32(const Values& values, const Shape& shape) {
  Tensor result = empty(shape);
  lockstep::detail::copy_into(result, from_values(values, shape));
  return result;
}

inline Values values_of(const Tensor& tensor) {
  const Tensor host = empty(tensor.sizes(), {.dtype = Dtype::f64});
  lockstep::detail::copy_into(host, tensor);
  const double* data = host.const_data_ptr<double>();
  return {data, data + host.numel()};
}

template <class M>
Names parameter_names(const M& module) {
  Names names;
  for (const auto& [name, parameter] : named_parameters(module)) names.push_back(name);
  return names;
}

inline double greatest_magnitude(const Tensor& tensor) {
  double greatest = 0;
  for (const double value : values_of(tensor)) greatest = std::fmax(greatest, std::fabs(value));
  return greatest;
}

}  // namespace lockstep::testing
