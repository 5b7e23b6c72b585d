// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/ops/kernels/axis.hpp>
#include <lockstep/ops/kernels/blocks.hpp>
#include <lockstep/ops/kernels/reduce_kernels.hpp>
#include <lockstep/ops/kernels/row_loops.hpp>
#include <lockstep/ops/kernels/vector_math.hpp>
#include <lockstep/ops/kernels/vector_rows.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace lockstep::detail {

// The logarithm of a sum of exponentials, in two parts: their sum would round away the smaller one.
template <class T>
struct LogSum {
  T greatest;
  T rest;
  LOCKSTEP_HD T minus(T x) const { return (greatest - x) + rest; }
};

// Calls f(first element, first column, columns) for the columns of [outer, count, inner], up to
// kBlockSize neighbours at a time.
template <class F>
void for_each_columns(const Axis& axis, const F& f) {
  const std::size_t outer = axis.inner > 0 ? axis.outer : 0;
  for (std::size_t o = 0; o < outer; ++o) {
    for (std::size_t i = 0; i < axis.inner; i += kBlockSize) {
      f(o * axis.count * axis.inner + i, o * axis.inner + i, std::min(kBlockSize, axis.inner - i));
    }
  }
}

// e[i] = exp(x[i] − greatest(i)), where the exponent is at most 0. Vector functions of f64 are slow
// below `kNothing`, where these are 0.
template <class T, class Greatest>
void exponentials(const T* x, const Greatest& greatest, std::size_t count, T* e) {
  constexpr bool kClips = std::is_same_v<T, double>;
  constexpr T kNothing = -746;
  bool clipped = false;
  for (std::size_t i = 0; i < count; ++i) {
    const T below = x[i] - greatest(i);
    const bool nothing = kClips && below < kNothing;
    clipped |= nothing;
    e[i] = nothing ? T{} : below;
  }
  vectorized::exp(e, e, count);
  if (!clipped) return;
  for (std::size_t i = 0; i < count; ++i) e[i] = x[i] - greatest(i) < kNothing ? T{} : e[i];
}

// The sum of a row's exponentials, from which the greatest was subtracted so that nothing
// overflows.
template <class T>
struct SumOfExponentials {
  T greatest;
  double sum;
  LogSum<T> log() const { return {greatest, static_cast<T>(std::log(sum))}; }
};

// Of a row; the exponentials go to `out`.
template <class T>
SumOfExponentials<T> sum_of_exponentials(const T* in, T* out, std::size_t count) {
  SumOfExponentials<T> found{};
  if constexpr (std::is_same_v<T, float>) {
    if (vectorized::exponentials(in, out, count, found.greatest, found.sum)) return found;
  }
  found.greatest = greatest_of(in, static_cast<std::int64_t>(count));
  exponentials(
      in, [&](std::size_t) { return found.greatest; }, count, out);
  found.sum = sum_of_terms(count, [out](std::size_t i) { return static_cast<double>(out[i]); });
  return found;
}

// Softmax of a row.
template <class T>
SumOfExponentials<T> softmax_row(const T* in, T* out, std::size_t count) {
  const SumOfExponentials<T> found = sum_of_exponentials(in, out, count);
  scale_row(out, static_cast<std::int64_t>(count), static_cast<T>(1 / found.sum));
  return found;
}

// Softmax of columns side by side: each vector has an element of each, and nothing is copied.
template <class T>
class SoftmaxColumns {
 public:
  // The exponentials of n columns from `x` on, n at most kBlockSize, go to `e`.
  SoftmaxColumns(const T* x, T* e, const Axis& axis, std::size_t n) {
    std::fill_n(greatest_, n, -std::numeric_limits<T>::infinity());
    for (std::size_t c = 0; c < axis.count; ++c) {
      const T* const row = x + c * axis.inner;
      for (std::size_t i = 0; i < n; ++i) {
        greatest_[i] = greatest_[i] < row[i] ? row[i] : greatest_[i];
      }
    }
    std::fill_n(sums_, n, 0.0);
    for (std::size_t c = 0; c < axis.count; ++c) {
      T* const to = e + c * axis.inner;
      exponentials(
          x + c * axis.inner, [this](std::size_t i) { return greatest_[i]; }, n, to);
      for (std::size_t i = 0; i < n; ++i) sums_[i] += static_cast<double>(to[i]);
    }
  }

  // Makes softmax of the exponentials.
  void scale(T* e, const Axis& axis, std::size_t n) const {
    T factors[kBlockSize];
    for (std::size_t i = 0; i < n; ++i) factors[i] = static_cast<T>(1 / sums_[i]);
    for (std::size_t c = 0; c < axis.count; ++c) {
      for (std::size_t i = 0; i < n; ++i) e[c * axis.inner + i] *= factors[i];
    }
  }

  LogSum<T> log(std::size_t i) const { return SumOfExponentials<T>{greatest_[i], sums_[i]}.log(); }

 private:
  T greatest_[kBlockSize];
  double sums_[kBlockSize];
};

template <class T, bool Log>
struct SoftmaxCall {
  View<const T> in;
  View<T> out;
  Axis axis;

  void operator()() const {
    if (in.size == 0) return;
    if (axis.inner == 1) return of_rows(in.data, out.data, axis.outer);
    for_each_columns(axis, [this](std::size_t at, std::size_t, std::size_t n) {
      of_columns(in.data + at, out.data + at, n);
    });
  }

 private:
  void of_columns(const T* x, T* to, std::size_t n) const {
    const SoftmaxColumns<T> columns(x, to, axis, n);
    if constexpr (!Log) return columns.scale(to, axis, n);
    LogSum<T> log_sums[kBlockSize];
    for (std::size_t i = 0; i < n; ++i) log_sums[i] = columns.log(i);
    for (std::size_t c = 0; c < axis.count; ++c, x += axis.inner, to += axis.inner) {
      for (std::size_t i = 0; i < n; ++i) to[i] = -log_sums[i].minus(x[i]);
    }
  }

  void of_rows(const T* x, T* to, std::size_t rows) const {
    if constexpr (std::is_same_v<T, float>) {
      constexpr auto* by_vectors = Log ? &vectorized::log_softmax : &vectorized::softmax;
      if (by_vectors(x, to, rows, axis.count, vectorized::best_instructions())) return;
    }
    for (; rows > 0; --rows, x += axis.count, to += axis.count) {
      if constexpr (Log) {
        const LogSum<T> log_sum = sum_of_exponentials(x, to, axis.count).log();
        LOCKSTEP_INDEPENDENT
        for (std::size_t c = 0; c < axis.count; ++c) to[c] = -log_sum.minus(x[c]);
      } else {
        softmax_row(x, to, axis.count);
      }
    }
  }
};

// The gradient of softmax, y · (grad − Σ grad · y), or of its logarithm, grad − exp(y) · Σ grad.
template <class T, bool Log>
struct SoftmaxGradCall {
  View<const T> grad;
  View<const T> y;
  View<T> out;
  Axis axis;

  void operator()() const {
    if (y.size == 0) return;
    if (axis.inner == 1) return of_rows(grad.data, y.data, out.data, axis.outer);
    for_each_columns(axis, [this](std::size_t at, std::size_t, std::size_t n) {
      of_columns(grad.data + at, y.data + at, out.data + at, n);
    });
  }

 private:
  static T term(T g, T y) { return Log ? g : g * y; }
  static T zero(std::size_t) { return T{}; }

  void of_columns(const T* g, const T* x, T* to, std::size_t n) const {
    double sums[kBlockSize] = {};
    for (std::size_t c = 0; c < axis.count; ++c) {
      for (std::size_t i = 0, at = c * axis.inner; i < n; ++i, ++at) {
        sums[i] += static_cast<double>(term(g[at], x[at]));
      }
    }
    for (std::size_t c = 0; c < axis.count; ++c) {
      if constexpr (Log) exponentials(x, zero, n, to);
      LOCKSTEP_INDEPENDENT
      for (std::size_t i = 0; i < n; ++i) {
        const T sum = static_cast<T>(sums[i]);
        to[i] = Log ? g[i] - to[i] * sum : x[i] * (g[i] - sum);
      }
      g += axis.inner;
      x += axis.inner;
      to += axis.inner;
    }
  }

  void of_rows(const T* g, const T* x, T* to, std::size_t rows) const {
    if constexpr (std::is_same_v<T, float>) {
      constexpr auto* by_vectors = Log ? &vectorized::log_softmax_grad : &vectorized::softmax_grad;
      if (by_vectors(g, x, to, rows, axis.count, vectorized::best_instructions())) return;
    }
    for (; rows > 0; --rows, g += axis.count, x += axis.count, to += axis.count) {
      const T sum = static_cast<T>(sum_of_terms(
          axis.count, [g, x](std::size_t c) { return static_cast<double>(term(g[c], x[c])); }));
      if constexpr (Log) exponentials(x, zero, axis.count, to);
      LOCKSTEP_INDEPENDENT
      for (std::size_t c = 0; c < axis.count; ++c) {
        to[c] = Log ? g[c] - to[c] * sum : x[c] * (g[c] - sum);
      }
    }
  }
};

}  // namespace lockstep::detail
