// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/ops/kernels/blocks.hpp>
#include <lockstep/ops/kernels/reduce_kernels.hpp>
#include <lockstep/ops/kernels/softmax_kernels.hpp>
#include <lockstep/ops/kernels/vector_math.hpp>
#include <lockstep/ops/reduction.hpp>
#include <lockstep/tensor/row_kernels.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace lockstep::detail {

// Collects the losses, each in its place or summed up in double.
template <class T>
class LossSink {
 public:
  LossSink(View<T> out, Reduction reduction) : out_(out), reduction_(reduction) {}

  void add(std::size_t row, T loss) {
    if (reduction_ == Reduction::none) {
      out_[row] = loss;
    } else {
      total_ += static_cast<double>(loss);
    }
  }
  // With no rows the mean is NaN, as in torch.
  void finish(std::size_t rows) const {
    if (reduction_ == Reduction::none) return;
    const double divisor = reduction_ == Reduction::mean ? static_cast<double>(rows) : 1;
    out_[0] = static_cast<T>(total_ / divisor);
  }

 private:
  const View<T> out_;
  const Reduction reduction_;
  double total_ = 0;
};

// The gradient of each row's loss.
template <class T>
class LossGradient {
 public:
  LOCKSTEP_HD LossGradient(View<const T> grad, Reduction reduction, std::size_t rows)
      : grad_(grad),
        reduction_(reduction),
        shared_(reduction == Reduction::none   ? T(0)
                : reduction == Reduction::mean ? grad[0] / static_cast<T>(rows)
                                               : grad[0]) {}

  LOCKSTEP_HD T operator[](std::size_t row) const {
    return reduction_ == Reduction::none ? grad_[row] : shared_;
  }

 private:
  const View<const T> grad_;
  const Reduction reduction_;
  const T shared_;
};

// Row r of [outer, classes, inner] starts here; its classes are `inner` apart.
LOCKSTEP_HD inline std::size_t row_start(const Axis& axis, std::size_t row) {
  return row / axis.inner * axis.count * axis.inner + row % axis.inner;
}

// nll_loss of log-probabilities; or cross_entropy of logits, whose softmax is written, too.
template <class T>
struct ClassLossCall {
  View<const T> in;
  View<const std::int64_t> labels;
  View<T> probs;  // of logits alone
  View<T> out;
  Axis axis;
  Reduction reduction;
  bool of_logits;

  void operator()() const {
    LossSink<T> sink(out, reduction);
    const auto add = [&](std::size_t row, const LogSum<T>& log_sum) {
      const std::size_t label = checked_row(RowsOf::cross_entropy, labels[row], row, axis.count);
      sink.add(row, log_sum.minus(in[row_start(axis, row) + label * axis.inner]));
    };
    if (of_logits && axis.inner == 1) {
      for (std::size_t row = 0, at = 0; row < axis.outer; ++row, at += axis.count) {
        add(row, softmax_row(in.data + at, probs.data + at, axis.count).log());
      }
    } else if (of_logits) {
      for_each_columns(axis, [&](std::size_t at, std::size_t row, std::size_t n) {
        const SoftmaxColumns<T> columns(in.data + at, probs.data + at, axis, n);
        columns.scale(probs.data + at, axis, n);
        for (std::size_t i = 0; i < n; ++i) add(row + i, columns.log(i));
      });
    } else {
      for (std::size_t row = 0; row < labels.size; ++row) {
        const std::size_t label = checked_row(RowsOf::nll_loss, labels[row], row, axis.count);
        sink.add(row, -in[row_start(axis, row) + label * axis.inner]);
      }
    }
    sink.finish(labels.size);
  }
};

// The gradient of the loss, times each of `probs` less 1 at the label; without them, for nll_loss,
// that is −1 there and 0 elsewhere.
template <class T>
struct ClassGradCall {
  View<const T> grad;
  View<const T> probs;
  View<const std::int64_t> labels;
  View<T> out;
  Axis axis;
  Reduction reduction;

  void operator()() const {
    const LossGradient<T> above(grad, reduction, labels.size);
    const RowsOf of = probs.size == 0 ? RowsOf::nll_loss : RowsOf::cross_entropy;
    if (probs.size == 0) {
      std::fill_n(out.data, out.size, T(0));
    } else if (axis.inner == 1) {
      for (std::size_t row = 0; row < axis.outer; ++row) {
        const T factor = above[row];
        const std::size_t first = row * axis.count;
        LOCKSTEP_INDEPENDENT
        for (std::size_t c = 0; c < axis.count; ++c) out[first + c] = factor * probs[first + c];
      }
    } else {
      for_each_columns(axis, [&](std::size_t first, std::size_t row, std::size_t n) {
        T factors[kBlockSize];
        for (std::size_t i = 0; i < n; ++i) factors[i] = above[row + i];
        for (std::size_t c = 0, at = first; c < axis.count; ++c, at += axis.inner) {
          LOCKSTEP_INDEPENDENT
          for (std::size_t i = 0; i < n; ++i) out[at + i] = factors[i] * probs[at + i];
        }
      });
    }
    for (std::size_t row = 0; row < labels.size; ++row) {
      const std::size_t label = checked_row(of, labels[row], row, axis.count);
      const std::size_t at = row_start(axis, row) + label * axis.inner;
      out[at] = above[row] * (probs.size == 0 ? T(-1) : probs[at] - 1);
    }
  }
};

template <class T>
struct MseLossCall {
  View<const T> a;
  View<const T> b;
  View<T> out;
  Reduction reduction;

  void operator()() const {
    const auto error = [this](std::size_t i) { return (a[i] - b[i]) * (a[i] - b[i]); };
    if (reduction == Reduction::none) {
      LOCKSTEP_INDEPENDENT
      for (std::size_t i = 0; i < a.size; ++i) out[i] = error(i);
      return;
    }
    const double sum =
        sum_of_terms(a.size, [&](std::size_t i) { return static_cast<double>(error(i)); });
    out[0] = finished<T>(sum, reduction == Reduction::mean ? static_cast<double>(a.size) : 1);
  }
};

template <class T>
struct MseGradCall {
  View<const T> grad;
  View<const T> a;
  View<const T> b;
  View<T> out;
  Reduction reduction;

  void operator()() const {
    const LossGradient<T> above(grad, reduction, a.size);
    for (std::size_t i = 0; i < a.size; ++i) out[i] = 2 * above[i] * (a[i] - b[i]);
  }
};

// The loss of smooth_l1_loss, of a difference. A NaN stays one.
template <class T>
struct SmoothAbs {
  T beta;
  LOCKSTEP_HD T operator()(T x) const {
    const T size = std::abs(x);
    const T part = size < beta ? size : beta;
    return part / beta * (size - part / 2);
  }
};

// The losses of binary_cross_entropy of a probability and of a logit.
template <class T>
struct BinaryCrossEntropy {
  LOCKSTEP_HD T operator()(T x, T target) const {
    return from(target, std::log1p(-x), std::log(x));
  }
  void block(std::size_t n, T* out, const T* x, const T* target) const {
    T log_of_rest[kBlockSize];
    map_block([](T v) { return -v; }, log_of_rest, x);
    vectorized::log1p(log_of_rest, log_of_rest, n);
    T log[kBlockSize];
    std::copy_n(x, kBlockSize, log);
    vectorized::log(log, log, n);
    map_block(from, out, target, log_of_rest, log);
  }

 private:
  LOCKSTEP_HD static T from(T target, T log_of_rest, T log) {
    return (target - T(1)) * bounded(log_of_rest) - target * bounded(log);
  }
  LOCKSTEP_HD static T bounded(T log) { return log < T(-100) ? T(-100) : log; }
};

template <class T>
struct BinaryCrossEntropyOfLogit {
  LOCKSTEP_HD T operator()(T x, T target) const {
    return from(x, target, std::log1p(std::exp(-std::abs(x))));
  }
  void block(std::size_t n, T* out, const T* x, const T* target) const {
    T log[kBlockSize];
    map_block([](T v) { return -std::abs(v); }, log, x);
    vectorized::exp(log, log, n);
    vectorized::log1p(log, log, n);
    map_block(from, out, x, target, log);
  }

 private:
  LOCKSTEP_HD static T from(T x, T target, T log) {
    // A sum of two parts, one of which is 0: compilers make vectors of it, and jumps of a choice.
    // The usual max(x, 0) − x · target would be NaN for an infinite x.
    const T above = x < T(0) ? T(0) : x;
    const T below = x < T(0) ? -x : T(0);
    return above * (T(1) - target) + below * target + log;
  }
};

}  // namespace lockstep::detail
