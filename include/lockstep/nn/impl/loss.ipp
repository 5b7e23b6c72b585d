// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/nn/loss.hpp>
#include <lockstep/ops/loss.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep::nn {

LOCKSTEP_INLINE Tensor CrossEntropyLoss::forward(const Tensor& input, const Tensor& target) const {
  return cross_entropy(input, target, reduction, label_smoothing);
}

LOCKSTEP_INLINE Tensor CrossEntropyLoss::operator()(const Tensor& input,
                                                    const Tensor& target) const {
  return forward(input, target);
}

LOCKSTEP_INLINE Tensor MSELoss::forward(const Tensor& input, const Tensor& target) const {
  return mse_loss(input, target, reduction);
}

LOCKSTEP_INLINE Tensor MSELoss::operator()(const Tensor& input, const Tensor& target) const {
  return forward(input, target);
}

LOCKSTEP_INLINE Tensor L1Loss::forward(const Tensor& input, const Tensor& target) const {
  return l1_loss(input, target, reduction);
}

LOCKSTEP_INLINE Tensor L1Loss::operator()(const Tensor& input, const Tensor& target) const {
  return forward(input, target);
}

LOCKSTEP_INLINE Tensor SmoothL1Loss::forward(const Tensor& input, const Tensor& target) const {
  return smooth_l1_loss(input, target, reduction, beta);
}

LOCKSTEP_INLINE Tensor SmoothL1Loss::operator()(const Tensor& input, const Tensor& target) const {
  return forward(input, target);
}

LOCKSTEP_INLINE Tensor BCELoss::forward(const Tensor& input, const Tensor& target) const {
  return binary_cross_entropy(input, target, reduction);
}

LOCKSTEP_INLINE Tensor BCELoss::operator()(const Tensor& input, const Tensor& target) const {
  return forward(input, target);
}

LOCKSTEP_INLINE Tensor BCEWithLogitsLoss::forward(const Tensor& input, const Tensor& target) const {
  return binary_cross_entropy_with_logits(input, target, reduction);
}

LOCKSTEP_INLINE Tensor BCEWithLogitsLoss::operator()(const Tensor& input,
                                                     const Tensor& target) const {
  return forward(input, target);
}

}  // namespace lockstep::nn
