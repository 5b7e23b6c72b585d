// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/ops/kernels/axis.hpp>
#include <lockstep/ops/kernels/blocks.hpp>
#include <lockstep/ops/kernels/vector_math.hpp>
#include <lockstep/ops/kernels/vector_rows.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <type_traits>

namespace lockstep::detail {

// The logarithm of a sum of exponentials, in two parts: their sum would round away the smaller one.
template <class T>
struct LogSum {
  T greatest;
  T rest;
  LOCKSTEP_HD T minus(T x) const { return (greatest - x) + rest; }
};

// On host devices a row of elements, `step` apart, is computed with a block at a time, and a block
// in groups of so many elements.
inline constexpr std::size_t kGroup = 8;

// The n elements of a row from number i on, whole groups of them: where they are, or in `room` with
// the last group filled up.
template <class T>
const T* read_block(const T* row, std::size_t step, std::size_t i, std::size_t n, T filling,
                    T* room) {
  if (step == 1 && n % kGroup == 0) return row + i;
  if (step == 1) {
    std::copy_n(row + i, n, room);
  } else {
    for (std::size_t k = 0; k < n; ++k) room[k] = row[(i + k) * step];
  }
  std::fill(room + n, room + (n + kGroup - 1) / kGroup * kGroup, filling);
  return room;
}

// Where such a block may be computed: where it will be, or in `room`. Then it must be written.
template <class T>
T* block_to_write(T* row, std::size_t step, std::size_t i, std::size_t n, T* room) {
  return step == 1 && n % kGroup == 0 ? row + i : room;
}
template <class T>
void write_block(T* row, std::size_t step, std::size_t i, std::size_t n, const T* block) {
  if (block == row + i) return;
  for (std::size_t k = 0; k < n; ++k) row[(i + k) * step] = block[k];
}

// Calls f(first, how many) for the blocks of a row.
template <class F>
void for_each_block(std::size_t count, const F& f) {
  for (std::size_t i = 0; i < count; i += kBlockSize) f(i, std::min(count - i, kBlockSize));
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
  for_each_block(count, [&](std::size_t i, std::size_t n) {
    T room[kBlockSize];
    const T* const x = read_block(row, step, i, n, row[0], room);
    for_each_in_groups(
        n, [&](std::size_t at, std::size_t k) { greatest[k] = std::max(greatest[k], x[at]); });
  });
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

// The sum of a row's exponentials, from which the greatest was subtracted so that nothing
// overflows.
template <class T>
struct SumOfExponentials {
  T greatest;
  double sum;
  LogSum<T> log() const { return {greatest, static_cast<T>(std::log(sum))}; }
};

// Of a row of no more than two groups, for which plain loops are faster.
template <class T>
SumOfExponentials<T> sum_of_few_exponentials(const T* in, T* out, std::size_t count,
                                             std::size_t step) {
  T e[2 * kGroup] = {};
  T greatest = in[0];
  for (std::size_t i = 1; i < count; ++i) greatest = std::max(greatest, in[i * step]);
  for (std::size_t i = 0; i < count; ++i) e[i] = in[i * step] - greatest;
  vectorized::exp(e, e, count);
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    sum += static_cast<double>(e[i]);
    if (out != nullptr) out[i * step] = e[i];
  }
  return {greatest, sum};
}

// Of a row; the exponentials go to `out` if there is one.
template <class T>
SumOfExponentials<T> sum_of_exponentials(const T* in, T* out, std::size_t count, std::size_t step) {
  if (count <= 2 * kGroup) return sum_of_few_exponentials(in, out, count, step);
  if constexpr (std::is_same_v<T, float>) {
    SumOfExponentials<T> found{};
    if (step == 1 && vectorized::exponentials(in, out, count, found.greatest, found.sum)) {
      return found;
    }
  }
  const T greatest = greatest_of(in, step, count);
  double sums[kGroup] = {};
  for_each_block(count, [&](std::size_t i, std::size_t n) {
    T x_room[kBlockSize];
    T e_room[kBlockSize];
    const T nothing = -std::numeric_limits<T>::infinity();
    const T* const x = read_block(in, step, i, n, nothing, x_room);
    T* const e = out == nullptr ? e_room : block_to_write(out, step, i, n, e_room);
    exponentials(x, greatest, n, e);
    for_each_in_groups(
        n, [&](std::size_t at, std::size_t k) { sums[k] += static_cast<double>(e[at]); });
    if (out != nullptr) write_block(out, step, i, n, e);
  });
  return {greatest, std::accumulate(sums, sums + kGroup, 0.0)};
}

// Softmax of a row.
template <class T>
SumOfExponentials<T> softmax_row(const T* in, T* out, std::size_t count, std::size_t step) {
  const SumOfExponentials<T> found = sum_of_exponentials(in, out, count, step);
  const T factor = static_cast<T>(1 / found.sum);
  LOCKSTEP_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) out[i * step] *= factor;
  return found;
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
    if constexpr (std::is_same_v<T, float>) {
      constexpr auto* rows = Log ? &vectorized::log_softmax : &vectorized::softmax;
      const auto by = vectorized::best_instructions();
      if (axis.inner == 1 && rows(in.data, out.data, axis.outer, axis.count, by)) return;
    }
    for_each_row(axis, [this](std::size_t first) {
      const T* const from = in.data + first;
      T* const to = out.data + first;
      if constexpr (Log) {
        const LogSum<T> log_sum =
            sum_of_exponentials(from, static_cast<T*>(nullptr), axis.count, axis.inner).log();
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

// The gradient of softmax, y · (grad − Σ grad · y), or of its logarithm, grad − exp(y) · Σ grad.
template <class T, bool Log>
struct SoftmaxGradCall {
  View<const T> grad;
  View<const T> y;
  View<T> out;
  Axis axis;

  void operator()() const {
    if (y.size == 0) return;
    if constexpr (std::is_same_v<T, float>) {
      constexpr auto* rows = Log ? &vectorized::log_softmax_grad : &vectorized::softmax_grad;
      const auto by = vectorized::best_instructions();
      if (axis.inner == 1 && rows(grad.data, y.data, out.data, axis.outer, axis.count, by)) return;
    }
    for_each_row(axis,
                 [this](std::size_t first) { row(grad.data + first, y.data + first, first); });
  }

 private:
  void row(const T* above, const T* result, std::size_t first) const {
    const std::size_t step = axis.inner;
    T* const to = out.data + first;
    T g_room[kBlockSize];
    T y_room[kBlockSize];
    double sums[kGroup] = {};
    for_each_block(axis.count, [&](std::size_t i, std::size_t n) {
      const T* const g = read_block(above, step, i, n, T{}, g_room);
      const T* const x = read_block(result, step, i, n, T{}, y_room);
      for_each_in_groups(n, [&](std::size_t at, std::size_t k) {
        sums[k] += static_cast<double>(Log ? g[at] : g[at] * x[at]);
      });
    });
    const T sum = static_cast<T>(std::accumulate(sums, sums + kGroup, 0.0));
    for_each_block(axis.count, [&](std::size_t i, std::size_t n) {
      const T* const g = read_block(above, step, i, n, T{}, g_room);
      const T* const x = read_block(result, step, i, n, T{}, y_room);
      T to_room[kBlockSize];
      T* const block = block_to_write(to, step, i, n, to_room);
      if constexpr (Log) {
        exponentials(x, T{}, n, block);
        for_each_in_groups(
            n, [&](std::size_t at, std::size_t) { block[at] = g[at] - block[at] * sum; });
      } else {
        for_each_in_groups(n,
                           [&](std::size_t at, std::size_t) { block[at] = x[at] * (g[at] - sum); });
      }
      write_block(to, step, i, n, block);
    });
  }
};

}  // namespace lockstep::detail
