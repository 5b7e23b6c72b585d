// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/nn/loss.hpp>
#include <lockstep/ops/loss.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep::nn {

LOCKSTEP_INLINE Tensor CrossEntropyLoss::forward(const Tensor& input, const Tensor& target) const {
  return cross_entropy(input, target, reduction);
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

}  // namespace lockstep::nn
