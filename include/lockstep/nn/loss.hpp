// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/ops/loss.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/reduction.hpp>
#include <lockstep/tensor/tensor.hpp>

// Losses as modules of two arguments, the input and its target.
namespace lockstep::detail {

// A loss whose only option is the reduction.
template <Tensor (*loss)(const Tensor&, const Tensor&, Reduction)>
struct PairLoss {
  Reduction reduction = Reduction::mean;

  Tensor forward(const Tensor& input, const Tensor& target) const {
    return loss(input, target, reduction);
  }
  Tensor operator()(const Tensor& input, const Tensor& target) const {
    return forward(input, target);
  }
};

}  // namespace lockstep::detail

namespace lockstep::nn {

// The loss of a classifier: lockstep::cross_entropy of outputs [batch, classes, …] and labels
// [batch, …] of i64.
//
// **Torch counterpart.** torch.nn.CrossEntropyLoss, without weight and ignore_index.
// **Threads and exceptions.** Those of lockstep::cross_entropy.
// **Example.** nn::CrossEntropyLoss criterion; criterion(model(images), labels).backward();
struct CrossEntropyLoss {
  Reduction reduction = Reduction::mean;
  double label_smoothing = 0;

  Tensor forward(const Tensor& input, const Tensor& target) const {
    return cross_entropy(input, target, reduction, label_smoothing);
  }
  Tensor operator()(const Tensor& input, const Tensor& target) const {
    return forward(input, target);
  }
};

using CrossEntropy = CrossEntropyLoss;

// (input − target)² of two tensors of one shape, its mean by default: lockstep::mse_loss.
//
// **Torch counterpart.** torch.nn.MSELoss.
// **Threads and exceptions.** Those of lockstep::mse_loss.
using MSELoss = detail::PairLoss<mse_loss>;

// |input − target| of two tensors of one shape, its mean by default: lockstep::l1_loss.
//
// **Torch counterpart.** torch.nn.L1Loss.
// **Threads and exceptions.** Those of lockstep::l1_loss.
using L1Loss = detail::PairLoss<l1_loss>;

// The square of small differences, the magnitude of others: lockstep::smooth_l1_loss.
//
// **Torch counterpart.** torch.nn.SmoothL1Loss.
// **Threads and exceptions.** Those of lockstep::smooth_l1_loss.
struct SmoothL1Loss {
  Reduction reduction = Reduction::mean;
  double beta = 1;

  Tensor forward(const Tensor& input, const Tensor& target) const {
    return smooth_l1_loss(input, target, reduction, beta);
  }
  Tensor operator()(const Tensor& input, const Tensor& target) const {
    return forward(input, target);
  }
};

// The loss of probabilities for targets from 0 to 1: lockstep::binary_cross_entropy.
//
// **Torch counterpart.** torch.nn.BCELoss, without weight.
// **Threads and exceptions.** Those of lockstep::binary_cross_entropy.
using BCELoss = detail::PairLoss<binary_cross_entropy>;

// The same for values that are not probabilities yet, but would be after a sigmoid:
// lockstep::binary_cross_entropy_with_logits.
//
// **Torch counterpart.** torch.nn.BCEWithLogitsLoss, without weight and pos_weight.
// **Threads and exceptions.** Those of lockstep::binary_cross_entropy_with_logits.
using BCEWithLogitsLoss = detail::PairLoss<binary_cross_entropy_with_logits>;

}  // namespace lockstep::nn
