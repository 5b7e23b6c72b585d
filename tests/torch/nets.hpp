// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/torch.hpp>

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

// The modules and numbers of the reference's cases, in LibTorch's types.
namespace lockstep::testing {

inline at::Tensor f64(const std::vector<double>& values, at::IntArrayRef shape) {
  return torch::tensor(values, torch::kFloat64).reshape(shape);
}

// y = x·Wᵀ + b with W = [[1, 2], [3, 4]] and b = [0.5, −0.5].
struct TorchL0 : torch::nn::Cloneable<TorchL0> {
  torch::Tensor weight, bias;

  TorchL0() { reset(); }
  void reset() override {
    weight = register_parameter("weight", f64({1, 2, 3, 4}, {2, 2}));
    bias = register_parameter("bias", f64({0.5, -0.5}, {2}));
  }
  torch::Tensor forward(const torch::Tensor& x) { return torch::linear(x, weight, bias); }
};

struct TorchReplaceable : TorchL0 {
  // Registers other parameters than there were.
  void replace() { weight = parameters_["weight"] = f64({4, 3, 2, 1}, {2, 2}).requires_grad_(); }
  void replace_by_one_elsewhere() { parameters_["bias"] = bias.detach().to(torch::kMeta); }
};

inline at::Tensor torch_x5() { return f64({1, 0, 0, 1, 1, 1, 2, -1, -1, 2}, {5, 2}); }
inline at::Tensor torch_y5() {
  return f64({1.5, 2.5, 2.5, 3.5, 3.5, 6.5, 0.5, 1.5, 3.5, 4.5}, {5, 2});
}

// As many host devices.
inline std::vector<Device> host_list(int count) {
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) devices.emplace_back(DeviceType::cpu, i);
  return devices;
}

inline bool close(const at::Tensor& a, const at::Tensor& b, double tolerance = 1e-12) {
  return a.defined() && b.defined() && a.sizes() == b.sizes() &&
         torch::allclose(a, b, /*rtol=*/0, tolerance);
}

}  // namespace lockstep::testing
