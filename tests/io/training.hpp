// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/nn/batch_norm.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/dropout.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cmath>
#include <cstdint>
#include <vector>

// A small training run, whose every step differs.
namespace lockstep::testing {

struct SmallNet {
  nn::Linear in{3, 8};
  nn::BatchNorm1d norm{8};
  nn::Linear out{8, 1};
  double dropped = 0;  // the share of what is dropped

  Tensor forward(const Tensor& x) const {
    return out.forward(dropout(relu(norm.forward(in.forward(x))), dropped));
  }
};

// Parameters that only `variant` decides.
template <class M>
void set_parameters(const M& module, int variant) {
  double place = variant;
  for (const Parameter& parameter : parameters(module)) {
    std::vector<float> values(static_cast<std::size_t>(parameter.numel()));
    for (float& value : values) value = static_cast<float>(std::sin(place += 0.7));
    detail::copy_into(parameter, from_values(values, parameter.sizes()));
  }
}

inline Tensor batch(std::int64_t step) {
  std::vector<float> values(12);
  double place = static_cast<double>(step);
  for (float& value : values) value = static_cast<float>(std::cos(place += 1.3));
  return from_values(values, {4, 3});
}

template <class Model, class Optimizer, class Batch>
void train(Model& model, Optimizer& optimizer, std::int64_t first, std::int64_t last,
           const Batch& make_batch) {
  for (std::int64_t step = first; step < last; ++step) {
    optimizer.zero_grad();
    const Tensor y = model.forward(make_batch(step));
    (y * y).mean().backward();
    optimizer.step();
  }
}

inline std::vector<std::vector<double>> values_of(const StateDict& dict) {
  std::vector<std::vector<double>> result;
  for (const NamedTensor& entry : dict) {
    result.push_back(entry.tensor.to(Dtype::f64).to_vector<double>());
  }
  return result;
}

}  // namespace lockstep::testing
