// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/autograd/variable.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/sparse.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cmath>
#include <concepts>
#include <unordered_set>
#include <vector>

namespace lockstep::optim {

// Scales all gradients by one factor, in place, so that their Euclidean norm, taken as if they were
// one vector, is at most `max_norm`. Returns the norm that they had.
//
// The norm is summed in f64. The factor is max_norm / (norm + 1e-6) if that is below 1; parameters
// without a gradient are left out. A norm that is not finite makes gradients that are not, unless
// `error_if_nonfinite` asks for an error. A sparse gradient is coalesced first.
//
// **Torch counterpart.** torch.nn.utils.clip_grad_norm_ with norm_type = 2.
// **Devices and streams.** Gradients may be on several devices; each is read and scaled on the
// current stream of its device, and the norm is waited for.
// **Backward.** Not recorded.
// **Threads and exceptions.** A ValueError for a max_norm that is negative or not a number, and for
// a norm that is not finite if asked for; nothing has been scaled then.
// **Example.** optim::clip_grad_norm_(model.parameters(), 1.0);
template <std::derived_from<Tensor> T>
double clip_grad_norm_(const std::vector<T>& parameters, double max_norm,
                       bool error_if_nonfinite = false) {
  check<ValueError>(max_norm >= 0, "clip_grad_norm_: expected a max_norm of at least 0, got ",
                    max_norm);
  const NoGradGuard guard;
  std::vector<Tensor> gradients;  // each once
  std::unordered_set<const lockstep::detail::TensorImpl*> seen;
  std::vector<Tensor> squares;  // all are issued before the first is waited for
  for (const Tensor& parameter : parameters) {
    Tensor gradient = parameter.grad();
    if (!gradient.defined()) continue;
    if (gradient.is_sparse()) {
      const Tensor coalesced = gradient.coalesce();
      if (!gradient.is_same(coalesced)) parameter.set_grad(coalesced);
      gradient = coalesced.values();
    } else if (!gradient.is_contiguous()) {  // or elements may be one another
      gradient = gradient.contiguous();
      parameter.set_grad(gradient);
    }
    const Tensor wide = gradient.to(Dtype::f64);
    if (seen.insert(gradient.impl().get()).second) gradients.push_back(gradient);
    squares.push_back((wide * wide).sum());
  }
  double sum = 0;
  for (const Tensor& square : squares) sum += square.item();
  const double norm = std::sqrt(sum);
  check<ValueError>(!error_if_nonfinite || std::isfinite(norm),
                    "clip_grad_norm_: the norm of the gradients is ", norm);
  const double factor = max_norm / (norm + 1e-6);
  if (factor >= 1) return norm;
  for (const Tensor& gradient : gradients) gradient.mul_(factor);
  return norm;
}

}  // namespace lockstep::optim
