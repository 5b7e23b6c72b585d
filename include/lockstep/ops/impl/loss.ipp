// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/function_ref.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/autocast.hpp>
#include <lockstep/ops/call_floating.hpp>
#include <lockstep/ops/elementwise.hpp>
#include <lockstep/ops/kernels/axis.hpp>
#include <lockstep/ops/kernels/loss_kernels.hpp>
#include <lockstep/ops/kernels/softmax_kernels.hpp>
#include <lockstep/ops/loss.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/softmax.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/shape.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep::detail {

// The dimension of the classes: 1, or the only one of an input without a batch.
inline std::size_t class_dim(const Shape& input) { return input.size() == 1 ? 0 : 1; }
inline Axis class_axis(const Shape& input) { return {input, class_dim(input)}; }

// The shape of the losses, one for each row of classes.
inline Shape row_shape(const Tensor& input) {
  Shape shape = input.sizes();
  shape.erase(class_dim(shape));
  return shape;
}

inline void check_class_loss(const char* operation, const Tensor& input, const Tensor& target) {
  check_same_device(operation, "the input", input, "the target", target);
  check<DtypeError>(target.dtype() == Dtype::i64, operation,
                    ": expected a target of class indices of i64, got ", target.dtype(),
                    " for an input of ", input.dtype());
  check_floating(operation, input);
  check<ShapeError>(input.dim() >= 1 && target.sizes() == row_shape(input), operation,
                    ": a target of shape ", target.sizes(), " does not fit an input of shape ",
                    input.sizes(), ": expected one label for each row of classes");
}

// The gradient of each row's loss, from that of the reduced one, times `factor`.
inline Tensor spread_gradient(const Tensor& grad, Reduction reduction, std::int64_t rows,
                              double factor = 1) {
  if (reduction == Reduction::mean) factor /= static_cast<double>(rows);
  return factor == 1 ? grad : grad * factor;
}

// Reduces the losses of rows or of elements.
inline Tensor reduce_rows(const Tensor& losses, Reduction reduction) {
  if (reduction == Reduction::none) return losses;
  return reduction == Reduction::sum ? sum(losses) : mean(losses);
}

// The transpose of nll_loss, which is linear in the input: scatters the losses' gradients to the
// labels' places.
struct NllGradOp {
  static constexpr const char* name = "nll_loss_grad";
  Reduction reduction;
  Shape shape;
  Saved target = {};

  Tensor forward(const Tensor& grad, const Tensor& labels) {
    target = labels;
    return call_floating<ClassGradCall>(name, shape, grad, Tensor(), labels, TheResult(),
                                        class_axis(shape), reduction);
  }
  std::array<Tensor, 2> backward(const Backward& saved, const Tensor& grad);
};

struct NllLossOp {
  static constexpr const char* name = "nll_loss";
  Reduction reduction;
  Shape shape = {};
  Saved target = {};

  Tensor forward(const Tensor& log_probs, const Tensor& labels) {
    shape = log_probs.sizes();
    target = labels;
    const Shape reduced = reduction == Reduction::none ? row_shape(log_probs) : Shape{};
    return call_floating<ClassLossCall>(name, reduced, log_probs, labels, AlsoWritten{},
                                        TheResult(), class_axis(shape), reduction, false);
  }
  std::array<Tensor, 2> backward(const Backward& saved, const Tensor& grad) {
    return {apply(NllGradOp{reduction, shape}, grad, saved(target)), Tensor()};
  }
};

LOCKSTEP_INLINE std::array<Tensor, 2> NllGradOp::backward(const Backward& saved,
                                                          const Tensor& grad) {
  return {apply(NllLossOp{reduction}, grad, saved(target)), Tensor()};
}

// Its gradient is (softmax(x) − one at the label) times that of the loss.
struct CrossEntropyOp {
  static constexpr const char* name = "cross_entropy";
  Reduction reduction;
  Saved x = {};
  Saved target = {};
  Tensor probs = {};

  Tensor forward(const Tensor& logits, const Tensor& labels) {
    x = logits;
    target = labels;
    const Shape reduced = reduction == Reduction::none ? row_shape(logits) : Shape{};
    probs = empty_on(current_stream(logits.device()), logits.sizes(), logits.dtype());
    return call_floating<ClassLossCall>(name, reduced, logits, labels, AlsoWritten{probs},
                                        TheResult(), class_axis(logits.sizes()), reduction, true);
  }
  std::array<Tensor, 2> backward(const Backward& saved, const Tensor& grad) {
    const Tensor logits = saved(x);
    const Tensor labels = saved(target);
    const Shape& shape = logits.sizes();
    if (!is_grad_enabled()) {
      return {call_floating<ClassGradCall>(name, shape, grad, probs, labels, TheResult(),
                                           class_axis(shape), reduction),
              Tensor()};
    }
    const std::size_t dim = class_dim(shape);
    const Tensor less_one =
        apply(NllGradOp{Reduction::sum, shape}, ones({}, logits.options()), labels);
    Tensor above = spread_gradient(grad, reduction, labels.numel());
    if (reduction == Reduction::none) above = unsqueeze(above, static_cast<std::int64_t>(dim));
    return {(known_softmax(logits, dim, probs) + less_one) * above, Tensor()};
  }
};

struct MseLossOp {
  static constexpr const char* name = "mse_loss";
  Reduction reduction;
  Saved a = {};
  Saved b = {};

  Tensor forward(const Tensor& left, const Tensor& right) {
    a = left;
    b = right;
    const Shape reduced = reduction == Reduction::none ? left.sizes() : Shape{};
    return call_floating<MseLossCall>(name, reduced, left, right, TheResult(), reduction);
  }

  std::array<Tensor, 2> backward(const Backward& saved, const Tensor& grad) {
    const Tensor left = saved(a);
    const Tensor right = saved(b);
    const Tensor gradient = is_grad_enabled()
                                ? (left - right) * spread_gradient(grad, reduction, left.numel(), 2)
                                : call_floating<MseGradCall>(name, left.sizes(), grad, left, right,
                                                             TheResult(), reduction);
    std::array<Tensor, 2> grads;
    if (saved.needs(0)) grads[0] = gradient;
    if (saved.needs(1)) grads[1] = -gradient;
    return grads;
  }
};

// smooth_l1_loss of the difference.
struct SmoothAbsOp {
  static constexpr const char* name = "smooth_l1_loss";
  double beta;
  Saved x = {};

  Tensor forward(const Tensor& difference) {
    x = difference;
    return compute_elements(difference.dtype(), name, [&]<class T>(T) {
      return map<T, T>(difference, SmoothAbs<T>{static_cast<T>(beta)});
    });
  }
  Tensor backward(const Backward& saved, const Tensor& grad) const {
    return grad * clamp(saved(x) / beta, -1, 1);
  }
};

// The forward of an element-wise loss, F of an element and its target.
template <class Op, template <class> class F>
struct OfPairs {
  Saved x = {};
  Saved target = {};

  Tensor forward(const Tensor& input, const Tensor& wanted) {
    x = input;
    target = wanted;
    return map_elements<F>(Op::name, input, wanted);
  }
};

struct BinaryCrossEntropyOp : OfPairs<BinaryCrossEntropyOp, BinaryCrossEntropy> {
  static constexpr const char* name = "binary_cross_entropy";

  std::array<Tensor, 2> backward(const Backward& saved, const Tensor& grad) const {
    const Tensor p = saved(x);
    std::array<Tensor, 2> grads;
    if (saved.needs(0)) grads[0] = grad * ((p - saved(target)) / clamp((1 - p) * p, 1e-12));
    if (saved.needs(1)) grads[1] = grad * (clamp(log(1 - p), -100) - clamp(log(p), -100));
    return grads;
  }
};

struct BinaryCrossEntropyOfLogitOp
    : OfPairs<BinaryCrossEntropyOfLogitOp, BinaryCrossEntropyOfLogit> {
  static constexpr const char* name = "binary_cross_entropy_with_logits";

  std::array<Tensor, 2> backward(const Backward& saved, const Tensor& grad) const {
    std::array<Tensor, 2> grads;
    if (saved.needs(0)) grads[0] = grad * (sigmoid(saved(x)) - saved(target));
    if (saved.needs(1)) grads[1] = -(grad * saved(x));
    return grads;
  }
};

// Throws unless two tensors match for an element-wise loss.
inline void check_pairs(const char* operation, const Tensor& input, const Tensor& target) {
  check_same_kind(operation, "the input", input, "the target", target);
  check<ShapeError>(input.sizes() == target.sizes(), operation, ": an input of shape ",
                    input.sizes(), " does not fit a target of shape ", target.sizes());
}

// Checks both and returns loss(input, target); half precision is computed as loss.hpp says.
inline Tensor loss_of(const char* operation,
                      void (*check_both)(const char*, const Tensor&, const Tensor&),
                      const Tensor& input, const Tensor& target,
                      FunctionRef<Tensor(const Tensor&, const Tensor&)> loss) {
  if (is_autocast_enabled()) {
    return autocast_to_f32(
        [&](const Tensor& x, const Tensor& y) {
          return loss_of(operation, check_both, x, y, loss);
        },
        input, target);
  }
  check_both(operation, input, target);
  if (is_half_precision(input.dtype())) return half_through_f32(loss, input, target);
  return loss(input, target);
}

// The same for an element-wise loss: reduces what `losses` returns.
inline Tensor loss_of_pairs(const char* operation, const Tensor& input, const Tensor& target,
                            Reduction reduction,
                            FunctionRef<Tensor(const Tensor&, const Tensor&)> losses) {
  return loss_of(operation, check_pairs, input, target, [&](const Tensor& x, const Tensor& y) {
    return reduce_rows(losses(x, y), reduction);
  });
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor nll_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  return detail::loss_of(
      "nll_loss", detail::check_class_loss, input, target,
      [&](const Tensor& x, const Tensor& y) { return apply(detail::NllLossOp{reduction}, x, y); });
}

LOCKSTEP_INLINE Tensor cross_entropy(const Tensor& input, const Tensor& target, Reduction reduction,
                                     double label_smoothing) {
  check<ValueError>(label_smoothing >= 0 && label_smoothing <= 1,
                    "cross_entropy: expected a label_smoothing from 0 to 1, got ", label_smoothing);
  const auto loss = [&](const Tensor& x, const Tensor& y) {
    if (label_smoothing == 0) return apply(detail::CrossEntropyOp{reduction}, x, y);
    const auto dim = static_cast<std::int64_t>(detail::class_dim(x.sizes()));
    const Tensor log_probs = log_softmax(x, dim);
    return nll_loss(log_probs, y, reduction) * (1 - label_smoothing) -
           detail::reduce_rows(mean(log_probs, {dim}), reduction) * label_smoothing;
  };
  return detail::loss_of("cross_entropy", detail::check_class_loss, input, target, loss);
}

LOCKSTEP_INLINE Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  return detail::loss_of(
      "mse_loss", detail::check_pairs, input, target,
      [&](const Tensor& x, const Tensor& y) { return apply(detail::MseLossOp{reduction}, x, y); });
}

LOCKSTEP_INLINE Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  return detail::loss_of_pairs("l1_loss", input, target, reduction,
                               [](const Tensor& x, const Tensor& y) { return abs(x - y); });
}

LOCKSTEP_INLINE Tensor smooth_l1_loss(const Tensor& input, const Tensor& target,
                                      Reduction reduction, double beta) {
  check<ValueError>(beta >= 0, "smooth_l1_loss: expected a beta of at least 0, got ", beta);
  return detail::loss_of_pairs(
      "smooth_l1_loss", input, target, reduction, [beta](const Tensor& x, const Tensor& y) {
        // SmoothAbs divides by it in x's dtype, where it may be 0.
        const bool is_zero = x.dtype() == Dtype::f32 ? static_cast<float>(beta) == 0 : beta == 0;
        return is_zero ? abs(x - y) : apply(detail::SmoothAbsOp{beta}, x - y);
      });
}

LOCKSTEP_INLINE Tensor binary_cross_entropy(const Tensor& input, const Tensor& target,
                                            Reduction reduction) {
  check<DtypeError>(!is_autocast_enabled(),
                    "binary_cross_entropy: under autocast the probabilities may have been rounded "
                    "to 0 and 1: use binary_cross_entropy_with_logits in place of it and of the "
                    "sigmoid, or switch autocast off for both");
  return detail::loss_of_pairs(
      "binary_cross_entropy", input, target, reduction,
      [](const Tensor& x, const Tensor& y) { return apply(detail::BinaryCrossEntropyOp{}, x, y); });
}

LOCKSTEP_INLINE Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                                        Reduction reduction) {
  return detail::loss_of_pairs("binary_cross_entropy_with_logits", input, target, reduction,
                               [](const Tensor& x, const Tensor& y) {
                                 return apply(detail::BinaryCrossEntropyOfLogitOp{}, x, y);
                               });
}

}  // namespace lockstep
