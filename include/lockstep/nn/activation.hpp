// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/nn/layer.hpp>
#include <lockstep/ops/gelu.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/softmax.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

// Functions without parameters as modules, for nn::Sequential. Gradients and errors are those of
// the functions of the same names.
namespace lockstep::detail {

// A function without options.
template <Tensor (*function)(const Tensor&)>
struct Activation {
  Tensor forward(const Tensor& x) const { return function(x); }
  Tensor operator()(const Tensor& x) const { return forward(x); }
};

}  // namespace lockstep::detail

namespace lockstep::nn {

// max(x, 0). **Torch counterpart.** torch.nn.ReLU.
using ReLU = detail::Activation<relu>;

// **Torch counterpart.** torch.nn.Tanh.
using Tanh = detail::Activation<lockstep::tanh>;

// 1 / (1 + e^−x). **Torch counterpart.** torch.nn.Sigmoid.
using Sigmoid = detail::Activation<sigmoid>;

// x where it is positive, elsewhere negative_slope · x. **Torch counterpart.** torch.nn.LeakyReLU.
struct LeakyReLU {
  double negative_slope = 0.01;

  Tensor forward(const Tensor& x) const { return lockstep::leaky_relu(x, negative_slope); }
  Tensor operator()(const Tensor& x) const { return forward(x); }
};

// x · sigmoid(x). **Torch counterpart.** torch.nn.SiLU.
using SiLU = detail::Activation<silu>;

// x · Φ(x), where Φ is the distribution function of the standard normal.
//
// **Torch counterpart.** torch.nn.GELU. **Example.** nn::GELU gelu{GeluApproximation::tanh};
struct GELU : detail::NoMembers {
  GeluApproximation approximate = GeluApproximation::none;

  GELU() = default;
  explicit GELU(GeluApproximation approximation) : approximate(approximation) {}

  Tensor forward(const Tensor& x) const { return lockstep::gelu(x, approximate); }
  Tensor operator()(const Tensor& x) const { return forward(x); }
};

// exp(x) divided by its sum along a dimension. **Torch counterpart.** torch.nn.Softmax.
struct Softmax : detail::NoMembers {
  std::int64_t dim;

  explicit Softmax(std::int64_t along) : dim(along) {}

  Tensor forward(const Tensor& x) const { return lockstep::softmax(x, dim); }
  Tensor operator()(const Tensor& x) const { return forward(x); }
};

}  // namespace lockstep::nn
