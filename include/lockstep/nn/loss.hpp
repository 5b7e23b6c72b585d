// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/reduction.hpp>
#include <lockstep/tensor/tensor.hpp>

// Losses as modules of two arguments, the input and its target.
namespace lockstep::nn {

// The loss of a classifier: lockstep::cross_entropy of outputs [batch, classes, …] and labels
// [batch, …] of i64.
//
// **Torch counterpart.** torch.nn.CrossEntropyLoss, without weight and label_smoothing.
// **Threads and exceptions.** Those of lockstep::cross_entropy.
// **Example.** nn::CrossEntropyLoss criterion; criterion(model(images), labels).backward();
struct CrossEntropyLoss {
  Reduction reduction = Reduction::mean;

  Tensor forward(const Tensor& input, const Tensor& target) const;
  Tensor operator()(const Tensor& input, const Tensor& target) const;
};

using CrossEntropy = CrossEntropyLoss;

// (input − target)² of two tensors of one shape, its mean by default: lockstep::mse_loss.
//
// **Torch counterpart.** torch.nn.MSELoss.
// **Threads and exceptions.** Those of lockstep::mse_loss.
struct MSELoss {
  Reduction reduction = Reduction::mean;

  Tensor forward(const Tensor& input, const Tensor& target) const;
  Tensor operator()(const Tensor& input, const Tensor& target) const;
};

}  // namespace lockstep::nn

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/nn/impl/loss.ipp>
#endif
