// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/module/parameter.hpp>
#include <lockstep/ops/linear.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <vector>

// The modules and numbers of the reference's cases.
namespace lockstep::testing {

inline Tensor f64(const std::vector<double>& values, const Shape& shape, Device device = {}) {
  return from_values(values, shape, device);
}

// y = x·Wᵀ + b with W = [[1, 2], [3, 4]] and b = [0.5, −0.5].
struct L0 {
  Parameter weight{f64({1, 2, 3, 4}, {2, 2})};
  Parameter bias{f64({0.5, -0.5}, {2})};
  Tensor forward(const Tensor& x) const { return linear(x, weight, bias); }
};

inline Tensor x5() { return f64({1, 0, 0, 1, 1, 1, 2, -1, -1, 2}, {5, 2}); }
inline std::vector<double> y5() { return {1.5, 2.5, 2.5, 3.5, 3.5, 6.5, 0.5, 1.5, 3.5, 4.5}; }

}  // namespace lockstep::testing
