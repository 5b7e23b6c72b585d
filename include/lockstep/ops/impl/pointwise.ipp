// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/autocast.hpp>
#include <lockstep/ops/elementwise.hpp>
#include <lockstep/ops/kernels/pointwise_kernels.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/scalar.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <array>
#include <limits>
#include <optional>

namespace lockstep::detail {

// The forward of an operation of F whose derivative uses its result.
template <class Op, template <class> class F>
struct OfResult {
  Saved y = {};
  Tensor forward(const Tensor& x) {
    Tensor result = map_elements<F>(Op::name, x);
    y = Saved::output(result);
    return result;
  }
};

// The same for a derivative that uses x.
template <class Op, template <class> class F, bool takes_integers = false>
struct OfInput {
  Saved x = {};
  Tensor forward(const Tensor& input) {
    x = input;
    return map_elements<F, takes_integers>(Op::name, input);
  }
};

// The gradient of `F`, a piecewise linear function; it is linear in the incoming gradient. `place`,
// x or the result, says which piece applies.
template <class F>
struct PiecewiseBackwardOp {
  static constexpr const char* name = F::name;
  F function;
  Saved place = {};
  Tensor forward(const Tensor& grad, const Tensor& from) {
    place = from;
    return compute_elements(grad.dtype(), name, [&]<class T>(T) {
      return map<T, T>(name, grad, from, function.template gradient<T>());
    });
  }
  std::array<Tensor, 2> backward(const Backward& saved, const Tensor& grad) const {
    return {apply(PiecewiseBackwardOp{function}, grad, saved(place).detach()), Tensor()};
  }
};

template <class F>
struct PiecewiseOp {
  static constexpr const char* name = F::name;
  F function;
  Saved place = {};
  Tensor forward(const Tensor& x) {
    Tensor result = compute_elements<F::takes_integers>(
        x.dtype(), name, [&]<class T>(T) { return map<T, T>(x, function.template value<T>()); });
    place = F::of_result ? Saved::output(result) : Saved(x);
    return result;
  }
  Tensor backward(const Backward& saved, const Tensor& grad) const {
    return apply(PiecewiseBackwardOp<F>{function}, grad, saved(place).detach());
  }
};

struct Rectifier {
  static constexpr const char* name = "relu";
  static constexpr bool takes_integers = true;
  static constexpr bool of_result = true;
  template <class T>
  Relu<T> value() const {
    return {};
  }
  template <class T>
  ReluGradient<T> gradient() const {
    return {};
  }
};

struct Leak {
  static constexpr const char* name = "leaky_relu";
  static constexpr bool takes_integers = false;
  static constexpr bool of_result = false;
  double slope;

  template <class T>
  LeakyRelu<T> value() const {
    const auto factor = static_cast<T>(slope);
    check<ValueError>(is_finite(factor), name, ": expected a negative_slope that is finite in ",
                      dtype_of<T>, ", got ", slope);
    return {factor};
  }
  template <class T>
  LeakyReluGradient<T> gradient() const {
    return {static_cast<T>(slope)};
  }
};

struct Bounds {
  static constexpr const char* name = "clamp";
  static constexpr bool takes_integers = true;
  static constexpr bool of_result = false;
  std::optional<Scalar> min;
  std::optional<Scalar> max;

  template <class T>
  Clamp<T> value() const {
    using Limits = std::numeric_limits<T>;
    constexpr T kMost = Limits::has_infinity ? Limits::infinity() : Limits::max();
    constexpr T kLeast = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    return {min ? scalar<T>(name, *min) : kLeast, max ? scalar<T>(name, *max) : kMost};
  }
  template <class T>
  ClampGradient<T> gradient() const {
    const Clamp<T> bounds = value<T>();
    return {bounds.min, bounds.max, min.has_value(), max.has_value()};
  }
};

struct ExpOp : OfResult<ExpOp, Exp> {
  static constexpr const char* name = "exp";
  Tensor backward(const Backward& saved, const Tensor& grad) const { return grad * saved(y); }
};

struct LogOp : OfInput<LogOp, Log> {
  static constexpr const char* name = "log";
  Tensor backward(const Backward& saved, const Tensor& grad) const { return grad / saved(x); }
};

struct SqrtOp : OfResult<SqrtOp, Sqrt> {
  static constexpr const char* name = "sqrt";
  Tensor backward(const Backward& saved, const Tensor& grad) const { return grad / (saved(y) * 2); }
};

struct TanhOp : OfResult<TanhOp, Tanh> {
  static constexpr const char* name = "tanh";
  Tensor backward(const Backward& saved, const Tensor& grad) const {
    const Tensor result = saved(y);
    if (!is_grad_enabled()) return map_elements<TanhGradient>(name, grad, result);
    return grad * (1 - result * result);
  }
};

struct SigmoidOp : OfResult<SigmoidOp, Sigmoid> {
  static constexpr const char* name = "sigmoid";
  Tensor backward(const Backward& saved, const Tensor& grad) const {
    const Tensor result = saved(y);
    if (!is_grad_enabled()) return map_elements<SigmoidGradient>(name, grad, result);
    return grad * ((1 - result) * result);
  }
};

struct SiluOp : OfInput<SiluOp, Silu> {
  static constexpr const char* name = "silu";
  Tensor backward(const Backward& saved, const Tensor& grad) const {
    const Tensor input = saved(x);
    if (!is_grad_enabled()) return map_elements<SiluGradient>(name, grad, input);
    const Tensor part = sigmoid(input);
    return grad * (part * (1 + input * (1 - part)));
  }
};

struct AbsOp : OfInput<AbsOp, Abs, true> {
  static constexpr const char* name = "abs";
  Tensor backward(const Backward& saved, const Tensor& grad) const {
    return grad * map_elements<Sign>(name, saved(x));
  }
};

struct SquareOp : OfInput<SquareOp, Square, true> {
  static constexpr const char* name = "square";
  Tensor backward(const Backward& saved, const Tensor& grad) const { return grad * saved(x) * 2; }
};

struct PowOp {
  static constexpr const char* name = "pow";
  double exponent;
  Saved x = {};
  Tensor forward(const Tensor& input) {
    x = input;
    return compute_elements(input.dtype(), name, [&]<class T>(T) {
      const Pow<T> power{static_cast<T>(exponent)};
      exponent = static_cast<double>(power.exponent);  // the gradient is that of this power
      return map<T, T>(input, power);
    });
  }
  Tensor backward(const Backward& saved, const Tensor& grad) const {
    if (exponent == 0) return zeros_like(grad);
    return grad * (pow(saved(x), exponent - 1) * exponent);
  }
};

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor relu(const Tensor& x) {
  return apply(detail::PiecewiseOp<detail::Rectifier>{}, x);
}

LOCKSTEP_INLINE Tensor exp(const Tensor& x) {
  if (is_autocast_enabled()) return detail::autocast_to_f32(exp, x);
  return apply(detail::ExpOp{}, x);
}

LOCKSTEP_INLINE Tensor log(const Tensor& x) {
  if (is_autocast_enabled()) return detail::autocast_to_f32(log, x);
  return apply(detail::LogOp{}, x);
}

LOCKSTEP_INLINE Tensor sqrt(const Tensor& x) { return apply(detail::SqrtOp{}, x); }

LOCKSTEP_INLINE Tensor tanh(const Tensor& x) { return apply(detail::TanhOp{}, x); }

LOCKSTEP_INLINE Tensor sigmoid(const Tensor& x) { return apply(detail::SigmoidOp{}, x); }

LOCKSTEP_INLINE Tensor silu(const Tensor& x) { return apply(detail::SiluOp{}, x); }

LOCKSTEP_INLINE Tensor leaky_relu(const Tensor& x, double negative_slope) {
  return apply(detail::PiecewiseOp<detail::Leak>{{negative_slope}}, x);
}

LOCKSTEP_INLINE Tensor abs(const Tensor& x) { return apply(detail::AbsOp{}, x); }

LOCKSTEP_INLINE Tensor square(const Tensor& x) { return apply(detail::SquareOp{}, x); }

LOCKSTEP_INLINE Tensor pow(const Tensor& x, double exponent) {
  if (is_autocast_enabled()) return detail::autocast_to_f32(pow, x, exponent);
  return apply(detail::PowOp{exponent}, x);
}

LOCKSTEP_INLINE Tensor clamp(const Tensor& x, std::optional<Scalar> min,
                             std::optional<Scalar> max) {
  check<ValueError>(min || max, "clamp: expected min, max or both");
  detail::check_defined("clamp", "the tensor", x);
  if (min) min = detail::rounded_to_half(x.dtype(), *min);
  if (max) max = detail::rounded_to_half(x.dtype(), *max);
  return apply(detail::PiecewiseOp<detail::Bounds>{{min, max}}, x);
}

}  // namespace lockstep
