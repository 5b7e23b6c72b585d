// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::testing {

using Values = std::vector<double>;

inline Tensor make_vector(const Values& values, Dtype dtype = Dtype::f64, Device device = {}) {
  const Tensor host = from_values(values, {static_cast<std::int64_t>(values.size())});
  Tensor result = empty(host.sizes(), {.dtype = dtype, .device = device});
  detail::copy_into(result, host);
  return result;
}

inline Parameter make_parameter(const Values& values, Dtype dtype = Dtype::f64,
                                Device device = {}) {
  return Parameter(make_vector(values, dtype, device));
}

// Gives the parameter a gradient of its own dtype and device.
inline void give_gradient(const Tensor& parameter, const Values& values) {
  parameter.set_grad(make_vector(values, parameter.dtype(), parameter.device()));
}

inline Values values_of(const Tensor& tensor) {
  const Tensor host = empty(tensor.sizes(), {.dtype = Dtype::f64});
  detail::copy_into(host, tensor);
  const double* data = host.const_data_ptr<double>();
  return {data, data + host.numel()};
}

// Two devices have come to the same numbers: host devices to the bit, while a GPU rounds a product
// that is added to something once, a host twice.
inline void expect_same_on_both(const Values& one, const Values& other, Dtype dtype = Dtype::f64) {
  if (Device("cpu:1").is_cpu()) {  // not where this is the text of a test on GPUs
    EXPECT_EQ(one, other);
    return;
  }
  ASSERT_EQ(one.size(), other.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_NEAR(one[i], other[i], dtype == Dtype::f64 ? 1e-14 : 2e-6) << "element " << i;
  }
}

}  // namespace lockstep::testing
