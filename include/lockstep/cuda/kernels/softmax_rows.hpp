// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/launch/eights.hpp>
#include <lockstep/cuda/launch/lanes.hpp>
#include <lockstep/ops/kernels/loss_kernels.hpp>
#include <lockstep/ops/kernels/softmax_kernels.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace lockstep::cuda {

// Softmax of `count` elements `step` apart, at least one, and the logarithm of the sum, which no
// library gives. The greatest is subtracted first, so that nothing overflows.
template <class T>
LOCKSTEP_HD detail::LogSum<T> softmax_row(const T* in, T* out, std::size_t count, std::size_t step,
                                          const Lanes& lanes) {
  T greatest = in[0];
  for (std::size_t c = lanes.index; c < count; c += lanes.count) {
    const T value = in[c * step];
    greatest = greatest < value ? value : greatest;
  }
  greatest = lanes.max(greatest);
  double sum = 0;
  for (std::size_t c = lanes.index; c < count; c += lanes.count) {
    const T e = std::exp(in[c * step] - greatest);
    out[c * step] = e;
    sum += static_cast<double>(e);
  }
  sum = lanes.sum(sum);
  const T factor = static_cast<T>(1 / sum);
  for (std::size_t c = lanes.index; c < count; c += lanes.count) out[c * step] *= factor;
  return {greatest, static_cast<T>(std::log(sum))};
}

// Softmax, or its logarithm, of the rows of [outer, count, inner], however large.
template <class T>
struct SoftmaxRows {
  View<const T> in;
  View<T> out;
  detail::Axis axis;
  bool log;
  bool by_thread;

  LOCKSTEP_HD void operator()(std::size_t row, const Lanes& lanes) const {
    const std::size_t first = detail::row_start(axis, row);
    const T* const from = in.data + first;
    T* const to = out.data + first;
    const auto log_sum = softmax_row(from, to, axis.count, axis.inner, lanes);
    if (!log) return;
    for (std::size_t c = lanes.index; c < axis.count; c += lanes.count) {
      to[c * axis.inner] = -log_sum.minus(from[c * axis.inner]);
    }
  }
};

// The gradient of softmax, y · (grad − Σ grad · y), or of its logarithm, grad − exp(y) · Σ grad, of
// the rows of [outer, count, inner].
template <class T, bool Log>
struct SoftmaxGradRows {
  detail::SoftmaxGradCall<T, Log> call;
  bool by_thread;

  std::size_t columns() const { return call.axis.count; }

  LOCKSTEP_HD void operator()(std::size_t row, const Lanes& lanes) const {
    const std::size_t step = call.axis.inner;
    const std::size_t first = detail::row_start(call.axis, row);
    const T* const grad = call.grad.data + first;
    const T* const y = call.y.data + first;
    T* const out = call.out.data + first;
    const auto for_columns = [&](const auto& use) {
      in_eights(
          lanes.index, lanes.count, call.axis.count,
          [&](std::size_t c) {
            return Pair{grad[c * step], y[c * step]};
          },
          use);
    };
    double terms = 0;
    for_columns([&](std::size_t, const Pair& at) {
      terms += static_cast<double>(Log ? at.grad : at.grad * at.y);
    });
    const T sum = static_cast<T>(lanes.sum(terms));
    for_columns([&](std::size_t c, const Pair& at) {
      out[c * step] = Log ? at.grad - std::exp(at.y) * sum : at.y * (at.grad - sum);
    });
  }

 private:
  struct Pair {
    T grad;
    T y;
  };
};

// Divides a tensor of [outer, count, inner] into parts of [n, count, inner] with at most `most`
// elements each, which is what a library can count. The tensor has some elements.
class SoftmaxParts {
 public:
  SoftmaxParts(const detail::Axis& axis, std::size_t most)
      : outer_(axis.outer), each_(axis.count * axis.inner), at_once_(most / each_) {}

  // False if one [count, inner] alone is too large.
  bool possible() const { return at_once_ > 0; }

  // Calls part(first, n) for each, from its element number `first` on.
  template <class Part>
  void for_each(const Part& part) const {
    for (std::size_t done = 0; done < outer_; done += at_once_) {
      part(done * each_, std::min(at_once_, outer_ - done));
    }
  }

 private:
  std::size_t outer_;
  std::size_t each_;  // elements of one [count, inner]
  std::size_t at_once_;
};

}  // namespace lockstep::cuda
