// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/ops/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

namespace lockstep::nn {

// Joins the dimensions from start_dim to end_dim: [batch, 64, 4, 4] becomes [batch, 1024].
//
// **Torch counterpart.** torch.nn.Flatten.
// **Threads and exceptions.** Those of lockstep::flatten.
// **Example.** nn::Sequential net{nn::MaxPool2d{2}, nn::Flatten{}, nn::Linear{1024, 10}};
struct Flatten {
  std::int64_t start_dim = 1;
  std::int64_t end_dim = -1;

  Tensor forward(const Tensor& x) const { return lockstep::flatten(x, start_dim, end_dim); }
  Tensor operator()(const Tensor& x) const { return forward(x); }
};

}  // namespace lockstep::nn
