// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine/sum_gradients.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/sparse_sum.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep::detail {

LOCKSTEP_INLINE Tensor SumGradients::forward(const Tensor& a, const Tensor& b) const {
  check<AutogradError>(a.sizes() == b.sizes() && a.dtype() == b.dtype(),
                       "two gradients of one tensor differ: shape ", a.sizes(), " and ", a.dtype(),
                       " against ", b.sizes(), " and ", b.dtype());
  check<DeviceError>(a.device() == b.device(), "two gradients of one tensor are on ", a.device(),
                     " and ", b.device());
  if (a.is_sparse() || b.is_sparse()) [[unlikely]] {
    if (a.is_sparse() && b.is_sparse()) return sum_sparse(a, b);
    return forward(a.to_dense(), b.to_dense());
  }
  Tensor total = empty(a.sizes(), a.options());
  copy_into(total, a);
  add_in_place(total, b);
  return total;
}

LOCKSTEP_INLINE Tensor sum_gradients(const Tensor& a, const Tensor& b) {
  return apply(SumGradients{}, a, b);
}

}  // namespace lockstep::detail
