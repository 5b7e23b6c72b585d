// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/ops/pointwise.hpp>
#include <lockstep/tensor/tensor.hpp>

// Functions without parameters as modules, for nn::Sequential.
namespace lockstep::nn {

// max(x, 0). **Torch counterpart.** torch.nn.ReLU.
struct ReLU {
  Tensor forward(const Tensor& x) const { return lockstep::relu(x); }
  Tensor operator()(const Tensor& x) const { return forward(x); }
};

// **Torch counterpart.** torch.nn.Tanh.
struct Tanh {
  Tensor forward(const Tensor& x) const { return lockstep::tanh(x); }
  Tensor operator()(const Tensor& x) const { return forward(x); }
};

// 1 / (1 + e^−x). **Torch counterpart.** torch.nn.Sigmoid.
struct Sigmoid {
  Tensor forward(const Tensor& x) const { return lockstep::sigmoid(x); }
  Tensor operator()(const Tensor& x) const { return forward(x); }
};

}  // namespace lockstep::nn
