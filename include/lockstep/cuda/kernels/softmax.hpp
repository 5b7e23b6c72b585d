// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/launch/lanes.hpp>
#include <lockstep/cuda/launch/loops.hpp>
#include <lockstep/cuda/libraries/cudnn.hpp>
#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/ops/kernels/axis.hpp>
#include <lockstep/ops/kernels/loss_kernels.hpp>
#include <lockstep/ops/kernels/softmax_kernels.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace lockstep::cuda {

// Softmax of `count` elements `step` apart, at least one, and the logarithm of the sum, which no
// library gives. The greatest is subtracted first, so that nothing overflows.
template <class T>
LOCKSTEP_HD detail::LogSum<T> softmax_row(const T* in, T* out, std::size_t count, std::size_t step,
                                          const Lanes& lanes) {
  const auto for_columns = [&](const T* from, const auto& use) {
    in_eights(
        lanes.index, lanes.count, count, [&](std::size_t c) { return from[c * step]; }, use);
  };
  T greatest = in[0];
  for_columns(in, [&](std::size_t, T value) { greatest = greatest < value ? value : greatest; });
  greatest = lanes.max(greatest);
  double sum = 0;
  for_columns(in, [&](std::size_t c, T value) {
    const T e = std::exp(value - greatest);
    out[c * step] = e;
    sum += static_cast<double>(e);
  });
  sum = lanes.sum(sum);
  const T factor = static_cast<T>(1 / sum);
  for_columns(out, [&](std::size_t c, T e) { out[c * step] = e * factor; });
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

  std::size_t columns() const { return axis.count; }

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

// Calls part(first, n) for parts of [n, count, inner] with at most `most` elements each, which is
// what a library can count, of a tensor of [outer, count, inner] that has some elements; `first` is
// a part's first element. False, and no call, if one [count, inner] alone is too large.
template <class Part>
bool in_softmax_parts(const detail::Axis& axis, std::size_t most, const Part& part) {
  const std::size_t each = axis.count * axis.inner;
  const std::size_t at_once = most / each;
  for (std::size_t done = 0; at_once > 0 && done < axis.outer; done += at_once) {
    part(done * each, std::min(at_once, axis.outer - done));
  }
  return at_once > 0;
}

// Softmax by cuDNN, as that of the channels of images of `inner` pixels. A kernel serves images
// that are too large for it.
template <class T, bool Log>
struct CudaCall<detail::SoftmaxCall<T, Log>> {
  using kernels = Kernels<SoftmaxRows<T>>;
  static void run(detail::StreamState& stream, const detail::SoftmaxCall<T, Log>& call) {
    constexpr std::size_t kMost = std::numeric_limits<std::int32_t>::max();
    if (call.in.size == 0) return;
    auto& on = static_cast<CudaStream&>(stream);
    const auto part = [&](std::size_t first, std::size_t outer) {
      const CudnnOnStream cudnn(on);
      const TensorDescriptor shape("cudnnCreateTensorDescriptor", on.device());
      check(cudnnSetTensor4dDescriptor(shape.get(), CUDNN_TENSOR_NCHW, cudnn_type<T>,
                                       static_cast<int>(outer), static_cast<int>(call.axis.count),
                                       static_cast<int>(call.axis.inner), 1),
            "cudnnSetTensor4dDescriptor", on.device());
      const T alpha = 1;
      const T beta = 0;
      check(cudnnSoftmaxForward(cudnn.handle(), Log ? CUDNN_SOFTMAX_LOG : CUDNN_SOFTMAX_ACCURATE,
                                CUDNN_SOFTMAX_MODE_CHANNEL, &alpha, shape.get(),
                                call.in.data + first, &beta, shape.get(), call.out.data + first),
            "cudnnSoftmaxForward", on.device());
    };
    if (in_softmax_parts(call.axis, kMost, part)) return;
    launch_kernel(stream, call.axis.outer * call.axis.inner,
                  SoftmaxRows<T>{call.in, call.out, call.axis, Log, call.axis.inner >= kLanes});
  }
};

template <class T, bool Log>
struct CudaCall<detail::SoftmaxGradCall<T, Log>> : AxisCall<SoftmaxGradRows<T, Log>> {};

template <class T>
using SoftmaxCallsOf = Kernels<detail::SoftmaxCall<T, false>, detail::SoftmaxCall<T, true>,
                               detail::SoftmaxGradCall<T, false>, detail::SoftmaxGradCall<T, true>>;

using SoftmaxCalls = ForFloating<SoftmaxCallsOf>;

}  // namespace lockstep::cuda
