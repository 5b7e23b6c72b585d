// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/tensor/shape.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>

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

// Softmax of `count` elements `step` apart. The greatest is subtracted first, so that nothing
// overflows.
template <class T>
LogSum<T> softmax_row(const T* in, T* out, std::size_t count, std::size_t step) {
  T greatest = in[0];
  for (std::size_t i = 1; i < count; ++i) greatest = std::max(greatest, in[i * step]);
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const T e = std::exp(in[i * step] - greatest);
    out[i * step] = e;
    sum += static_cast<double>(e);
  }
  const T factor = static_cast<T>(1 / sum);
  for (std::size_t i = 0; i < count; ++i) out[i * step] *= factor;
  return {greatest, static_cast<T>(std::log(sum))};
}

template <class T, bool Log>
struct SoftmaxCall {
  View<const T> in;
  View<T> out;
  Axis axis;

  void operator()() const {
    if (in.size == 0) return;
    for (std::size_t o = 0; o < axis.outer; ++o) {
      for (std::size_t i = 0; i < axis.inner; ++i) {
        const std::size_t first = o * axis.count * axis.inner + i;
        const T* const from = in.data + first;
        T* const to = out.data + first;
        const LogSum<T> log_sum = softmax_row(from, to, axis.count, axis.inner);
        if constexpr (Log) {
          for (std::size_t c = 0; c < axis.count; ++c) {
            to[c * axis.inner] = -log_sum.minus(from[c * axis.inner]);
          }
        }
      }
    }
  }
};

}  // namespace lockstep::detail
