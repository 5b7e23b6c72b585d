// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/autocast.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/empty.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace lockstep {

namespace detail {

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
  T minus(T x) const { return (greatest - x) + rest; }
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

template <bool Log>
struct SoftmaxOp {
  static constexpr const char* name = Log ? "log_softmax" : "softmax";
  std::size_t dim;
  Saved y = {};

  Tensor forward(const Tensor& x) {
    const Tensor in = packed(x);
    const Stream stream = current_stream(x.device());
    Tensor out = empty_on(stream, x.sizes(), x.dtype());
    dispatch_floating(x.dtype(), name, [&]<class T>(T) {
      launch_call(stream,
                  SoftmaxCall<T, Log>{input<T>(in), output<T>(out, stream), Axis(x.sizes(), dim)});
    });
    y = Saved::output(out);
    return out;
  }

  Tensor backward(const Backward& saved, const Tensor& grad) {
    const auto d = static_cast<std::int64_t>(dim);
    const Tensor out = saved(y);
    if constexpr (Log) {
      return grad - exp(out) * sum(grad, {d}, true);
    } else {
      return out * (grad - sum(grad * out, {d}, true));
    }
  }
};

template <bool Log>
Tensor softmax_along(const Tensor& x, std::int64_t dim) {
  if (is_autocast_enabled()) return autocast_to_f32(softmax_along<Log>, x, dim);
  const std::size_t at = wrap_dim(dim, x.sizes().size());
  if (x.dim() == 0) return softmax_along<Log>(x.reshape({1}), 0).reshape({});
  return apply(SoftmaxOp<Log>{at}, x);
}

}  // namespace detail

// exp(x) divided by its sum along `dim`, without overflow. f32 and f64 are taken, and where
// autocast is on half precision, as f32.
//
// **Torch counterpart.** torch.nn.functional.softmax.
inline Tensor softmax(const Tensor& x, std::int64_t dim) {
  return detail::softmax_along<false>(x, dim);
}

// The logarithm of `softmax`, exact where the softmax itself would round to 0.
//
// **Torch counterpart.** torch.nn.functional.log_softmax.
inline Tensor log_softmax(const Tensor& x, std::int64_t dim) {
  return detail::softmax_along<true>(x, dim);
}

}  // namespace lockstep
