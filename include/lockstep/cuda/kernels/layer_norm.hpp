// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/kernels/channel_sum.hpp>
#include <lockstep/cuda/kernels/sums.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/cuda/launch/lanes.hpp>
#include <lockstep/ops/kernels/layer_norm_kernels.hpp>

#include <cmath>
#include <cstddef>

namespace lockstep::cuda {

// A warp for each row.
template <class T>
struct LayerNormRows {
  detail::LayerNormCall<T> call;
  LOCKSTEP_HD void operator()(std::size_t row, const Lanes& lanes) const {
    const T* const x = call.in.data + row * call.width;
    T* const to = call.out.data + row * call.width;
    const auto count = static_cast<double>(call.width);
    double sum = 0;
    for (std::size_t c = lanes.index; c < call.width; c += lanes.count) {
      sum += static_cast<double>(x[c]);
    }
    const T middle = static_cast<T>(lanes.sum(sum) / count);
    double squares = 0;
    for (std::size_t c = lanes.index; c < call.width; c += lanes.count) {
      const double apart = static_cast<double>(x[c]) - static_cast<double>(middle);
      squares += apart * apart;
    }
    const T factor = static_cast<T>(1 / std::sqrt(lanes.sum(squares) / count + call.eps));
    if (lanes.index == 0) {
      call.mean[row] = middle;
      call.inverse[row] = factor;
    }
    for (std::size_t c = lanes.index; c < call.width; c += lanes.count) {
      const T value = (x[c] - middle) * factor;
      const T scaled = call.weight.size == 0 ? value : value * call.weight[c];
      to[c] = call.bias.size == 0 ? scaled : scaled + call.bias[c];
    }
  }
};

// The gradient of the input, and what the weight's is the sum of.
template <class T>
struct LayerNormGradRows {
  detail::LayerNormGradCall<T> call;
  View<T> products;  // gradient · normalised input; empty if nobody wants them
  LOCKSTEP_HD void operator()(std::size_t row, const Lanes& lanes) const {
    const std::size_t first = row * call.width;
    const auto count = static_cast<double>(call.width);
    double gradients = 0;
    double slopes = 0;
    for (std::size_t c = lanes.index; c < call.width; c += lanes.count) {
      const T y = normalised(row, c);
      const auto g = static_cast<double>(weighted(first, c));
      gradients += g;
      slopes += g * static_cast<double>(y);
      if (products.size > 0) products[first + c] = call.grad[first + c] * y;
    }
    if (call.out.size == 0) return;
    const T shift = static_cast<T>(lanes.sum(gradients) / count);
    const T slope = static_cast<T>(lanes.sum(slopes) / count);
    for (std::size_t c = lanes.index; c < call.width; c += lanes.count) {
      call.out[first + c] =
          (weighted(first, c) - shift - normalised(row, c) * slope) * call.inverse[row];
    }
  }

 private:
  LOCKSTEP_HD T normalised(std::size_t row, std::size_t c) const {
    return (call.in[row * call.width + c] - call.mean[row]) * call.inverse[row];
  }
  LOCKSTEP_HD T weighted(std::size_t first, std::size_t c) const {
    const T g = call.grad[first + c];
    return call.weight.size == 0 ? g : g * call.weight[c];
  }
};

template <class T>
struct CudaCall<detail::LayerNormCall<T>> {
  using kernels = Kernels<LayerNormRows<T>>;
  static void run(detail::StreamState& stream, const detail::LayerNormCall<T>& call) {
    launch_kernel(stream, call.mean.size, LayerNormRows<T>{call});
  }
};

template <class T>
struct CudaCall<detail::LayerNormGradCall<T>> {
  using kernels = typename Join<Kernels<LayerNormGradRows<T>>, SumKernels<ValueTerm<T>>>::type;
  static void run(detail::StreamState& stream, const detail::LayerNormGradCall<T>& call) {
    const ChannelWalks walks(call.mean.size, call.width, 1);
    const auto sum_rows = [&](View<const T> of, View<T> to) {
      launch_sum<ValueTerm<T>>(stream, {of}, to, walks.kept, walks.reduced, 1);
    };
    if (call.bias_grad.size > 0) sum_rows(call.grad, call.bias_grad);
    if (call.weight_grad.size > 0) {
      const ScratchOf<T> products(stream, call.grad.size);
      launch_kernel(stream, call.mean.size, LayerNormGradRows<T>{call, products.view()});
      sum_rows(products.const_view(), call.weight_grad);
    } else if (call.out.size > 0) {
      launch_kernel(stream, call.mean.size, LayerNormGradRows<T>{call, {}});
    }
  }
};

using LayerNormCalls = Join<ForFloating<detail::LayerNormCall>::type,
                            ForFloating<detail::LayerNormGradCall>::type>::type;

}  // namespace lockstep::cuda
