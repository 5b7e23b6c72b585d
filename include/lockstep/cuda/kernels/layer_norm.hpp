// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/kernels/channel_norm.hpp>
#include <lockstep/cuda/kernels/sums.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/launch/lanes.hpp>
#include <lockstep/cuda/launch/loops.hpp>
#include <lockstep/ops/kernels/axis.hpp>
#include <lockstep/ops/kernels/layer_norm_kernels.hpp>
#include <lockstep/tensor/shape.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace lockstep::cuda {

template <class T>
struct LayerNormRows {
  detail::LayerNormCall<T> call;

  std::size_t columns() const { return call.width; }

  LOCKSTEP_HD void operator()(std::size_t row, const Lanes& lanes) const {
    const T* const x = call.in.data + row * call.width;
    T* const to = call.out.data + row * call.width;
    const auto count = static_cast<double>(call.width);
    const auto for_columns = [&](const auto& use) {
      in_eights(
          lanes.index, lanes.count, call.width, [x](std::size_t c) { return x[c]; }, use);
    };
    double sum = 0;
    for_columns([&](std::size_t, T value) { sum += static_cast<double>(value); });
    const T middle = static_cast<T>(lanes.sum(sum) / count);
    double squares = 0;
    for_columns([&](std::size_t, T value) {
      const double apart = static_cast<double>(value) - static_cast<double>(middle);
      squares += apart * apart;
    });
    const T factor = static_cast<T>(1 / std::sqrt(lanes.sum(squares) / count + call.eps));
    if (lanes.index == 0) {
      call.mean()[row] = middle;
      call.inverse()[row] = factor;
    }
    for_columns([&](std::size_t c, T at) {
      const T value = (at - middle) * factor;
      const T scaled = call.weight.size == 0 ? value : value * call.weight[c];
      to[c] = call.bias.size == 0 ? scaled : scaled + call.bias[c];
    });
  }
};

// The gradient of the input, and what the weight's is the sum of.
template <class T>
struct LayerNormGradRows {
  detail::LayerNormGradCall<T> call;
  View<T> products;  // gradient · normalised input; empty if nobody wants them

  std::size_t columns() const { return call.width; }

  LOCKSTEP_HD void operator()(std::size_t row, const Lanes& lanes) const {
    const std::size_t first = row * call.width;
    const auto count = static_cast<double>(call.width);
    const T middle = call.mean()[row];
    const T factor = call.inverse()[row];
    const auto for_columns = [&](const auto& use) {
      in_eights(
          lanes.index, lanes.count, call.width,
          [&](std::size_t c) {
            const T grad = call.grad[first + c];
            return Column{grad, call.weight.size == 0 ? grad : grad * call.weight[c],
                          (call.in[first + c] - middle) * factor};
          },
          use);
    };
    double gradients = 0;
    double slopes = 0;
    for_columns([&](std::size_t c, const Column& at) {
      const auto g = static_cast<double>(at.weighted);
      gradients += g;
      slopes += g * static_cast<double>(at.normalised);
      if (products.size > 0) products[first + c] = at.grad * at.normalised;
    });
    if (call.out.size == 0) return;
    const T shift = static_cast<T>(lanes.sum(gradients) / count);
    const T slope = static_cast<T>(lanes.sum(slopes) / count);
    for_columns([&](std::size_t c, const Column& at) {
      call.out[first + c] = (at.weighted - shift - at.normalised * slope) * factor;
    });
  }

 private:
  struct Column {
    T grad;
    T weighted;
    T normalised;
  };
};

template <class T>
struct CudaCall<detail::LayerNormCall<T>> {
  using kernels = Kernels<LayerNormRows<T>>;
  static void run(detail::StreamState& stream, const detail::LayerNormCall<T>& call) {
    launch_kernel(stream, call.mean().size, LayerNormRows<T>{call});
  }
};

template <class T>
struct CudaCall<detail::LayerNormGradCall<T>> {
  using kernels = Kernels<LayerNormGradRows<T>, SumKernels<ValueTerm<T>>>;
  static void run(detail::StreamState& stream, const detail::LayerNormGradCall<T>& call) {
    const Shape shape{static_cast<std::int64_t>(call.mean().size),
                      static_cast<std::int64_t>(call.width)};
    const auto sum_rows = [&](View<const T> of, View<T> to) {
      launch_channel_sums<ValueTerm<T>>(stream, {of}, to, detail::Axis(shape, 1));
    };
    if (call.bias_grad.size > 0) sum_rows(call.grad, call.bias_grad);
    if (call.weight_grad.size > 0) {
      const ScratchOf<T> products(stream, call.grad.size);
      launch_kernel(stream, call.mean().size, LayerNormGradRows<T>{call, products.view()});
      sum_rows(products.const_view(), call.weight_grad);
    } else if (call.out.size > 0) {
      launch_kernel(stream, call.mean().size, LayerNormGradRows<T>{call, {}});
    }
  }
};

using LayerNormCalls = ForFloating<detail::LayerNormCall, detail::LayerNormGradCall>;

}  // namespace lockstep::cuda
