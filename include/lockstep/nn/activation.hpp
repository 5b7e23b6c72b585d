// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/ops/gelu.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/softmax.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

// Functions without parameters as modules, for nn::Sequential. Gradients and errors of forward are
// those of the functions of the same names.
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

// x where it is positive, elsewhere negative_slope · x. **Torch counterpart.** torch.nn.LeakyReLU.
struct LeakyReLU {
  double negative_slope = 0.01;

  Tensor forward(const Tensor& x) const { return lockstep::leaky_relu(x, negative_slope); }
  Tensor operator()(const Tensor& x) const { return forward(x); }
};

// x · sigmoid(x). **Torch counterpart.** torch.nn.SiLU.
struct SiLU {
  Tensor forward(const Tensor& x) const { return lockstep::silu(x); }
  Tensor operator()(const Tensor& x) const { return forward(x); }
};

// x · Φ(x), where Φ is the distribution function of the standard normal.
//
// **Torch counterpart.** torch.nn.GELU. **Example.** nn::GELU gelu{GeluApproximation::tanh};
struct GELU {
  GeluApproximation approximate = GeluApproximation::none;

  explicit GELU(GeluApproximation approximation = GeluApproximation::none)
      : approximate(approximation) {}

  Tensor forward(const Tensor& x) const { return lockstep::gelu(x, approximate); }
  Tensor operator()(const Tensor& x) const { return forward(x); }

  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("approximate", self.approximate);
  }
};

// exp(x) divided by its sum along a dimension. **Torch counterpart.** torch.nn.Softmax.
struct Softmax {
  std::int64_t dim;

  explicit Softmax(std::int64_t along) : dim(along) {}

  Tensor forward(const Tensor& x) const { return lockstep::softmax(x, dim); }
  Tensor operator()(const Tensor& x) const { return forward(x); }

  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("dim", self.dim);
  }
};

}  // namespace lockstep::nn
