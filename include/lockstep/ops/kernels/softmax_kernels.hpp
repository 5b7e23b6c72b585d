// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/ops/kernels/blocks.hpp>
#include <lockstep/ops/kernels/vector_math.hpp>
#include <lockstep/tensor/shape.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

namespace lockstep::detail {

// A shape seen along one dimension: [outer, count, inner].
struct Axis {
  std::size_t outer = 1;
  std::size_t count = 1;
  std::size_t inner = 1;

  Axis(const Shape& shape, std::size_t dim) : count(static_cast<std::size_t>(shape[dim])) {
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (d < dim) outer *= static_cast<std::size_t>(shape[d]);
      if (d > dim) inner *= static_cast<std::size_t>(shape[d]);
    }
  }
};

// The logarithm of a sum of exponentials, in two parts: their sum would round away the smaller one.
template <class T>
struct LogSum {
  T greatest;
  T rest;
  LOCKSTEP_HD T minus(T x) const { return (greatest - x) + rest; }
};

// On host devices a row of elements, `step` apart, is read a block at a time, and computed with in
// groups of so many.
inline constexpr std::size_t kGroup = 8;

// Reads the block that begins with element i of a row of `count`, fills the last group up, and
// returns how many elements it has.
template <class T>
std::size_t read_block(const T* row, std::size_t step, std::size_t i, std::size_t count, T filling,
                       T* block) {
  const std::size_t n = std::min(count - i, kBlockSize);
  for (std::size_t k = 0; k < n; ++k) block[k] = row[(i + k) * step];
  std::fill(block + n, block + (n + kGroup - 1) / kGroup * kGroup, filling);
  return n;
}

// Calls f(place in the block, place in the group) for all elements of groups that begin below n.
template <class F>
void for_each_in_groups(std::size_t n, const F& f) {
  for (std::size_t i = 0; i < n; i += kGroup) {
    LOCKSTEP_INDEPENDENT
    for (std::size_t k = 0; k < kGroup; ++k) f(i + k, k);
  }
}

template <class T>
T greatest_of(const T* row, std::size_t step, std::size_t count) {
  T greatest[kGroup];
  std::fill_n(greatest, kGroup, row[0]);
  for (std::size_t i = 0; i < count; i += kBlockSize) {
    T x[kBlockSize];
    const std::size_t n = read_block(row, step, i, count, row[0], x);
    for_each_in_groups(
        n, [&](std::size_t at, std::size_t k) { greatest[k] = std::max(greatest[k], x[at]); });
  }
  return *std::max_element(greatest, greatest + kGroup);
}

// Exponentials of a row that has been read as blocks of `x`, less its greatest: below `kNothing`
// they are 0, and vector functions are slow there.
template <class T>
void exponentials(const T* x, T greatest, std::size_t n, T* e) {
  constexpr T kNothing = sizeof(T) == sizeof(float) ? -104 : -746;
  for_each_in_groups(n, [&](std::size_t at, std::size_t) {
    const T below = x[at] - greatest;
    e[at] = below < kNothing ? T{} : below;
  });
  vectorized::exp(e, e, n);
  for_each_in_groups(
      n, [&](std::size_t at, std::size_t) { e[at] = x[at] - greatest < kNothing ? T{} : e[at]; });
}

// The logarithm of the sum of a row's exponentials; `keep(i, e, n)` gets these, n from number i on.
// The greatest is subtracted first, so that nothing overflows.
template <class T, class Keep>
LogSum<T> log_sum_of(const T* row, std::size_t step, std::size_t count, double& sum,
                     const Keep& keep) {
  const T greatest = greatest_of(row, step, count);
  double sums[kGroup] = {};
  for (std::size_t i = 0; i < count; i += kBlockSize) {
    T x[kBlockSize];
    T e[kBlockSize];
    const T nothing = -std::numeric_limits<T>::infinity();
    const std::size_t n = read_block(row, step, i, count, nothing, x);
    exponentials(x, greatest, n, e);
    for_each_in_groups(
        n, [&](std::size_t at, std::size_t k) { sums[k] += static_cast<double>(e[at]); });
    keep(i, e, n);
  }
  sum = std::accumulate(sums, sums + kGroup, 0.0);
  return {greatest, static_cast<T>(std::log(sum))};
}

// Softmax of a row.
template <class T>
LogSum<T> softmax_row(const T* in, T* out, std::size_t count, std::size_t step) {
  double sum = 0;
  const LogSum<T> log_sum =
      log_sum_of(in, step, count, sum, [&](std::size_t i, const T* e, std::size_t n) {
        for (std::size_t k = 0; k < n; ++k) out[(i + k) * step] = e[k];
      });
  const T factor = static_cast<T>(1 / sum);
  LOCKSTEP_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) out[i * step] *= factor;
  return log_sum;
}

// Calls f(first element) for each row.
template <class F>
void for_each_row(const Axis& axis, const F& f) {
  for (std::size_t o = 0; o < axis.outer; ++o) {
    for (std::size_t i = 0; i < axis.inner; ++i) f(o * axis.count * axis.inner + i);
  }
}

template <class T, bool Log>
struct SoftmaxCall {
  View<const T> in;
  View<T> out;
  Axis axis;

  void operator()() const {
    if (in.size == 0) return;
    for_each_row(axis, [this](std::size_t first) {
      const T* const from = in.data + first;
      T* const to = out.data + first;
      if constexpr (Log) {
        double sum = 0;
        const LogSum<T> log_sum = log_sum_of(from, axis.inner, axis.count, sum,
                                             [](std::size_t, const T*, std::size_t) {});
        LOCKSTEP_INDEPENDENT
        for (std::size_t c = 0; c < axis.count; ++c) {
          to[c * axis.inner] = -log_sum.minus(from[c * axis.inner]);
        }
      } else {
        softmax_row(from, to, axis.count, axis.inner);
      }
    });
  }
};

// The gradient of softmax, y · (grad − Σ grad · y), or of its logarithm, grad − exp(y) · Σ grad, in
// one call: for host devices alone.
template <class T, bool Log>
struct SoftmaxGradCall {
  View<const T> grad;
  View<const T> y;
  View<T> out;
  Axis axis;

  void operator()() const {
    if (y.size == 0) return;
    for_each_row(axis,
                 [this](std::size_t first) { row(grad.data + first, y.data + first, first); });
  }

 private:
  void row(const T* above, const T* result, std::size_t first) const {
    T g[kBlockSize];
    T x[kBlockSize];
    double sums[kGroup] = {};
    for (std::size_t i = 0; i < axis.count; i += kBlockSize) {
      const std::size_t n = read_block(above, axis.inner, i, axis.count, T{}, g);
      read_block(result, axis.inner, i, axis.count, T{}, x);
      for_each_in_groups(n, [&](std::size_t at, std::size_t k) {
        sums[k] += static_cast<double>(Log ? g[at] : g[at] * x[at]);
      });
    }
    const T sum = static_cast<T>(std::accumulate(sums, sums + kGroup, 0.0));
    for (std::size_t i = 0; i < axis.count; i += kBlockSize) {
      const std::size_t n = read_block(above, axis.inner, i, axis.count, T{}, g);
      read_block(result, axis.inner, i, axis.count, T{}, x);
      if constexpr (Log) {
        T e[kBlockSize];
        exponentials(x, T{}, n, e);
        for_each_in_groups(n, [&](std::size_t at, std::size_t) { g[at] -= e[at] * sum; });
      } else {
        for_each_in_groups(n, [&](std::size_t at, std::size_t) { g[at] = x[at] * (g[at] - sum); });
      }
      for (std::size_t k = 0; k < n; ++k) out[first + (i + k) * axis.inner] = g[k];
    }
  }
};

}  // namespace lockstep::detail
