// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/ops/kernels/axis.hpp>
#include <lockstep/ops/kernels/reduce_kernels.hpp>
#include <lockstep/ops/kernels/row_loops.hpp>
#include <lockstep/ops/kernels/vector_math.hpp>
#include <lockstep/ops/kernels/vector_rows.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace lockstep::detail {

// The logarithm of a sum of exponentials, in two parts: their sum would round away the smaller one.
template <class T>
struct LogSum {
  T greatest;
  T rest;
  LOCKSTEP_HD T minus(T x) const { return (greatest - x) + rest; }
};

// Calls f(operands, to, first row, rows) for the rows of [outer, count, inner] as matrices of
// [rows, count]: for all of them where they lie if inner is 1, else for copies of some at a time,
// which take the host's memory of a row at least.
template <class T, std::size_t n, class F>
void for_each_matrix(const Axis& axis, const std::array<const T*, n>& in, T* out, const F& f) {
  if (axis.outer == 0) return;  // and the other sizes may be of any product
  if (axis.inner == 1) return f(in, out, 0, axis.outer);
  constexpr std::size_t kElements = 2048;  // of a matrix, so that all stay in a near cache
  const std::size_t count = axis.count;
  const std::size_t most = std::min(axis.inner, kElements / std::max<std::size_t>(count, 1) + 1);
  std::vector<T> room((n + 1) * most * count);
  const auto matrix = [&](std::size_t k) { return room.data() + k * most * count; };
  std::array<const T*, n> operands;
  for (std::size_t k = 0; k < n; ++k) operands[k] = matrix(k);
  for (std::size_t row = 0; row < axis.outer * axis.inner;) {
    const std::size_t at = row % axis.inner;
    const std::size_t rows = std::min(most, axis.inner - at);
    const std::size_t start = (row - at) * count + at;
    const auto turn = [&](const auto& copy) {
      for (std::size_t c = 0; c < count; ++c) {
        for (std::size_t r = 0; r < rows; ++r) copy(start + c * axis.inner + r, r * count + c);
      }
    };
    for (std::size_t k = 0; k < n; ++k) {
      turn([from = in[k], to = matrix(k)](std::size_t i, std::size_t j) { to[j] = from[i]; });
    }
    f(operands, matrix(n), row, rows);
    turn([from = matrix(n), out](std::size_t i, std::size_t j) { out[i] = from[j]; });
    row += rows;
  }
}

// Exponentials of a row, less its greatest. Vector functions of f64 are slow below `kNothing`,
// where these are 0.
template <class T>
void exponentials(const T* x, T greatest, std::size_t count, T* e) {
  constexpr bool kClips = std::is_same_v<T, double>;
  constexpr T kNothing = -746;
  bool clipped = false;
  for (std::size_t i = 0; i < count; ++i) {
    const T below = x[i] - greatest;
    const bool nothing = kClips && below < kNothing;
    clipped |= nothing;
    e[i] = nothing ? T{} : below;
  }
  vectorized::exp(e, e, count);
  if (!clipped) return;
  for (std::size_t i = 0; i < count; ++i) e[i] = x[i] - greatest < kNothing ? T{} : e[i];
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
  exponentials(in, found.greatest, count, out);
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

template <class T, bool Log>
struct SoftmaxCall {
  View<const T> in;
  View<T> out;
  Axis axis;

  void operator()() const {
    if (in.size == 0) return;
    for_each_matrix(axis, std::array{in.data}, out.data,
                    [this](const auto& operands, T* to, std::size_t, std::size_t rows) {
                      of_rows(operands[0], to, rows);
                    });
  }

 private:
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
    for_each_matrix(axis, std::array{grad.data, y.data}, out.data,
                    [this](const auto& operands, T* to, std::size_t, std::size_t rows) {
                      of_rows(operands[0], operands[1], to, rows);
                    });
  }

 private:
  void of_rows(const T* g, const T* x, T* to, std::size_t rows) const {
    if constexpr (std::is_same_v<T, float>) {
      constexpr auto* by_vectors = Log ? &vectorized::log_softmax_grad : &vectorized::softmax_grad;
      if (by_vectors(g, x, to, rows, axis.count, vectorized::best_instructions())) return;
    }
    for (; rows > 0; --rows, g += axis.count, x += axis.count, to += axis.count) {
      const T sum = static_cast<T>(sum_of_terms(axis.count, [g, x](std::size_t c) {
        return static_cast<double>(Log ? g[c] : g[c] * x[c]);
      }));
      if constexpr (Log) exponentials(x, T{}, axis.count, to);
      LOCKSTEP_INDEPENDENT
      for (std::size_t c = 0; c < axis.count; ++c) {
        to[c] = Log ? g[c] - to[c] * sum : x[c] * (g[c] - sum);
      }
    }
  }
};

}  // namespace lockstep::detail
