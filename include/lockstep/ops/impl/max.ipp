// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/autocast.hpp>
#include <lockstep/ops/compare.hpp>
#include <lockstep/ops/elementwise.hpp>
#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/index.hpp>
#include <lockstep/ops/kernels/elementwise_kernels.hpp>
#include <lockstep/ops/max.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/ops/where.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <array>
#include <cstdint>

namespace lockstep::detail {

template <bool Greater>
struct ExtremumOp {
  static constexpr const char* name = Greater ? "maximum" : "minimum";
  Saved saved_a = {};
  Saved saved_b = {};

  Tensor forward(const Tensor& a, const Tensor& b) {
    saved_a = a;
    saved_b = b;
    return Greater ? map_elements<Maximum, true>(name, a, b)
                   : map_elements<Minimum, true>(name, a, b);
  }
  std::array<Tensor, 2> backward(const Backward& saved, const Tensor& grad) const {
    const Tensor a = saved(saved_a);
    const Tensor b = saved(saved_b);
    std::array<Tensor, 2> grads;
    if (saved.needs(0)) grads[0] = sum_to(shared(grad, share(a, b)), a.sizes());
    if (saved.needs(1)) grads[1] = sum_to(shared(grad, share(b, a)), b.sizes());
    return grads;
  }

 private:
  // An operand that was not taken gets 0, even of an infinite gradient.
  static Tensor shared(const Tensor& grad, const Tensor& share) {
    return where(ne(share, 0), grad * share, 0);
  }
  // The part of the gradient that `mine` gets; it is piecewise constant.
  static Tensor share(const Tensor& mine, const Tensor& other) {
    return Greater ? map_elements<MaximumShare>(name, mine, other)
                   : map_elements<MaximumShare>(name, other, mine);
  }
};

template <bool Greater>
Extremes extremes(const Tensor& x, std::int64_t dim, bool keepdim) {
  constexpr const char* name = Greater ? "max" : "min";
  check_defined(name, "the tensor", x);
  // For integers −1 − x reverses the order; −x may overflow.
  const auto turned = [&] {
    if (is_floating_point(x.dtype())) return -x.detach();
    dispatch_numeric(x.dtype(), name, []<class T>(T) {});  // or the error would name sub
    return sub(-1, x.detach());
  };
  const Tensor at = argmax(name, Greater ? x : turned(), dim, true);
  Extremes taken{x.dim() == 0 ? x.clone() : gather(x, dim, at), at};
  if (keepdim || x.dim() == 0) return taken;
  return {taken.values.squeeze(dim), at.squeeze(dim)};
}

template <bool Greater>
struct ExtremeOp {
  static constexpr const char* name = Greater ? "max" : "min";
  Saved x = {};
  Saved y = {};

  Tensor forward(const Tensor& input) {
    x = input;
    Tensor left = input;  // one dimension less at a time, as many rows share the work
    if (left.dim() == 0) left = input.clone();
    while (left.dim() > 0) left = extremes<Greater>(left, -1, false).values;
    y = Saved::output(left);
    return left;
  }
  Tensor backward(const Backward& saved, const Tensor& grad) const {
    const Tensor in = saved(x).detach();
    const Tensor most = saved(y).detach();
    const Tensor equal = where(eq(most, most), eq(in, most), ne(in, in));
    return where(equal, grad / sum(equal).to(grad.dtype()), 0);
  }
};

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Extremes max(const Tensor& x, std::int64_t dim, bool keepdim) {
  return detail::extremes<true>(x, dim, keepdim);
}

LOCKSTEP_INLINE Extremes min(const Tensor& x, std::int64_t dim, bool keepdim) {
  return detail::extremes<false>(x, dim, keepdim);
}

LOCKSTEP_INLINE Tensor max(const Tensor& x) { return apply(detail::ExtremeOp<true>{}, x); }

LOCKSTEP_INLINE Tensor min(const Tensor& x) { return apply(detail::ExtremeOp<false>{}, x); }

LOCKSTEP_INLINE Tensor maximum(const Tensor& a, const Tensor& b) {
  return detail::apply_to_both(detail::ExtremumOp<true>{}, a, b);
}

LOCKSTEP_INLINE Tensor minimum(const Tensor& a, const Tensor& b) {
  return detail::apply_to_both(detail::ExtremumOp<false>{}, a, b);
}

}  // namespace lockstep
