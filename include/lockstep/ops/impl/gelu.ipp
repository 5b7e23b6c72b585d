// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/autocast.hpp>
#include <lockstep/ops/elementwise.hpp>
#include <lockstep/ops/gelu.hpp>
#include <lockstep/ops/kernels/gelu_kernels.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <array>

namespace lockstep::detail {

// The second derivative of gelu.
inline Tensor gelu_curvature(const Tensor& x) {
  return exp(square(x) * -0.5) * kInvSqrtTau * (2 - square(x));
}

inline Tensor gelu_tanh_curvature(const Tensor& x) {
  const Tensor t = tanh((x + pow(x, 3) * kGeluCubic) * kSqrtTwoByPi);
  const Tensor slope = (1 + square(x) * (3 * kGeluCubic)) * kSqrtTwoByPi;
  const Tensor rest = x * (6 * kGeluCubic * kSqrtTwoByPi) - 2 * t * square(slope);
  return (1 - square(t)) * (slope + 0.5 * x * rest);
}

// Linear in the gradient.
template <bool Approximate>
struct GeluBackwardOp {
  static constexpr const char* name = "gelu_backward";
  Saved grad = {};
  Saved x = {};

  Tensor forward(const Tensor& from, const Tensor& input) {
    grad = from;
    x = input;
    return Approximate ? map_elements<GeluTanhGradient>(name, from, input)
                       : map_elements<GeluGradient>(name, from, input);
  }
  std::array<Tensor, 2> backward(const Backward& saved, const Tensor& second) const {
    std::array<Tensor, 2> grads;
    const Tensor at = saved(x);
    if (saved.needs(0)) grads[0] = apply(GeluBackwardOp{}, second, at);
    if (saved.needs(1)) {
      const auto curvature = Approximate ? gelu_tanh_curvature : gelu_curvature;
      // The curvature's terms may be out of f16's range.
      const bool half = is_half_precision(at.dtype());
      grads[1] = second * saved(grad) * (half ? half_through_f32(curvature, at) : curvature(at));
    }
    return grads;
  }
};

template <bool Approximate>
struct GeluOp {
  static constexpr const char* name = "gelu";
  Saved x = {};

  Tensor forward(const Tensor& input) {
    x = input;
    return Approximate ? map_elements<GeluTanh>(name, input) : map_elements<Gelu>(name, input);
  }
  Tensor backward(const Backward& saved, const Tensor& grad) const {
    return apply(GeluBackwardOp<Approximate>{}, grad, saved(x));
  }
};

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor gelu(const Tensor& x, GeluApproximation approximate) {
  if (approximate == GeluApproximation::tanh) return apply(detail::GeluOp<true>{}, x);
  return apply(detail::GeluOp<false>{}, x);
}

}  // namespace lockstep
