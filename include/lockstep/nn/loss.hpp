// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/ops/loss.hpp>
#include <lockstep/tensor/tensor.hpp>

// Losses as modules of two arguments, the input and its target.
namespace lockstep::nn {

// The loss of a classifier: lockstep::cross_entropy of outputs [batch, classes, …] and labels
// [batch, …] of i64.
//
// **Torch counterpart.** torch.nn.CrossEntropyLoss, without weight and label_smoothing.
// **Example.** nn::CrossEntropyLoss criterion; criterion(model(images), labels).backward();
struct CrossEntropyLoss {
  Reduction reduction = Reduction::mean;

  Tensor forward(const Tensor& input, const Tensor& target) const {
    return cross_entropy(input, target, reduction);
  }
  Tensor operator()(const Tensor& input, const Tensor& target) const {
    return forward(input, target);
  }
};

using CrossEntropy = CrossEntropyLoss;

// (input − target)² of two tensors of one shape, its mean by default: lockstep::mse_loss.
//
// **Torch counterpart.** torch.nn.MSELoss.
struct MSELoss {
  Reduction reduction = Reduction::mean;

  Tensor forward(const Tensor& input, const Tensor& target) const {
    return mse_loss(input, target, reduction);
  }
  Tensor operator()(const Tensor& input, const Tensor& target) const {
    return forward(input, target);
  }
};

}  // namespace lockstep::nn
