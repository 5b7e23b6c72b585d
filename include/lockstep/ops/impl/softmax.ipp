// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/autocast.hpp>
#include <lockstep/ops/call_floating.hpp>
#include <lockstep/ops/kernels/softmax_kernels.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/softmax.hpp>
#include <lockstep/tensor/half.hpp>

#include <cstddef>
#include <cstdint>

namespace lockstep {

namespace detail {

template <bool Log>
struct SoftmaxOp {
  static constexpr const char* name = Log ? "log_softmax" : "softmax";
  template <class T>
  using Call = SoftmaxCall<T, Log>;
  template <class T>
  using GradCall = SoftmaxGradCall<T, Log>;

  std::size_t dim;
  Tensor known = {};  // the result, if it is known already
  Saved y = {};

  Tensor forward(const Tensor& x) {
    Tensor out = known.defined()
                     ? make_view(known)
                     : call_floating<Call>(name, x.sizes(), x, TheResult(), Axis(x.sizes(), dim));
    y = Saved::output(out);
    return out;
  }

  Tensor backward(const Backward& saved, const Tensor& grad) {
    const auto d = static_cast<std::int64_t>(dim);
    const Tensor out = saved(y);
    if (!is_grad_enabled()) {
      return call_floating<GradCall>(name, out.sizes(), grad, out, TheResult(),
                                     Axis(out.sizes(), dim));
    }
    if constexpr (Log) {
      return grad - exp(out) * sum(grad, {d}, true);
    } else {
      return out * (grad - sum(grad * out, {d}, true));
    }
  }
};

template <bool Log>
Tensor softmax_along(const Tensor& x, std::int64_t dim) {
  if (is_autocast_enabled()) return autocast_to_f32(softmax_along<Log>, x, dim);
  check_defined(Log ? "log_softmax" : "softmax", "the input", x);
  if (is_half_precision(x.dtype())) return half_through_f32(softmax_along<Log>, x, dim);
  const std::size_t at = wrap_dim(dim, x.sizes().size());
  if (x.dim() == 0) return softmax_along<Log>(x.reshape({1}), 0).reshape({});
  return apply(SoftmaxOp<Log>{at}, x);
}

LOCKSTEP_INLINE Tensor known_softmax(const Tensor& x, std::size_t dim, const Tensor& result) {
  return apply(SoftmaxOp<false>{dim, result}, x);
}

}  // namespace detail

LOCKSTEP_INLINE Tensor softmax(const Tensor& x, std::int64_t dim) {
  return detail::softmax_along<false>(x, dim);
}

LOCKSTEP_INLINE Tensor log_softmax(const Tensor& x, std::int64_t dim) {
  return detail::softmax_along<true>(x, dim);
}

}  // namespace lockstep
