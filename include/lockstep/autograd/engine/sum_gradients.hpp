// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/saved.hpp>
#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <array>

namespace lockstep::detail {

struct SumGradients {
  static constexpr const char* name = "sum_gradients";
  Tensor forward(const Tensor& a, const Tensor& b) const;
  std::array<Tensor, 2> backward(const Backward&, const Tensor& grad) const { return {grad, grad}; }
};

Tensor sum_gradients(const Tensor& a, const Tensor& b);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/autograd/engine/impl/sum_gradients.ipp>
#endif
