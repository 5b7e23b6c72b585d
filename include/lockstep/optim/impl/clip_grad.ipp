// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/autograd/variable.hpp>
#include <lockstep/error.hpp>
#include <lockstep/finite.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/clip_grad.hpp>
#include <lockstep/tensor/memory_format.hpp>
#include <lockstep/tensor/sparse.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cmath>
#include <unordered_set>
#include <utility>
#include <vector>

namespace lockstep::optim {

LOCKSTEP_INLINE double clip_grad_norm_(const ParameterList& parameters, double max_norm,
                                       bool error_if_nonfinite) {
  check<ValueError>(max_norm >= 0, "clip_grad_norm_: expected a max_norm of at least 0, got ",
                    max_norm);
  const NoGradGuard guard;
  std::vector<Tensor> gradients;
  std::unordered_set<const detail::TensorImpl*> seen;  // tied parameters may have one gradient
  std::vector<Tensor> squares;  // all issued before the host waits for the first
  gradients.reserve(parameters.tensors().size());
  squares.reserve(parameters.tensors().size());
  for (const Tensor& parameter : parameters.tensors()) {
    Tensor gradient = parameter.grad();
    if (!gradient.defined()) continue;
    if (gradient.is_sparse()) {
      const Tensor coalesced = gradient.coalesce();
      if (!gradient.is_same(coalesced)) parameter.set_grad(coalesced);
      gradient = coalesced.values();
    } else if (detail::repeats_elements(gradient)) {
      gradient = gradient.contiguous();
      parameter.set_grad(gradient);
    }
    const Tensor wide = gradient.to(Dtype::f64);
    squares.push_back((wide * wide).sum());
    if (seen.insert(parameter.grad().impl().get()).second) gradients.push_back(std::move(gradient));
  }
  double sum = 0;
  for (const Tensor& square : squares) sum += square.item();
  const double norm = std::sqrt(sum);
  check<ValueError>(!error_if_nonfinite || detail::is_finite(norm),
                    "clip_grad_norm_: the norm of the gradients is ", norm);
  const double factor = max_norm / (norm + 1e-6);
  if (factor >= 1) return norm;
  for (const Tensor& gradient : gradients) gradient.mul_(factor);
  return norm;
}

}  // namespace lockstep::optim
