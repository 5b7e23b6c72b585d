// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/launch/fours.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/launch/strided_index.hpp>
#include <lockstep/cuda/libraries/conv_plan.hpp>
#include <lockstep/cuda/libraries/cudnn.hpp>
#include <lockstep/cuda/memory/scratch.hpp>
#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/ops/kernels/conv_kernels.hpp>
#include <lockstep/tensor/fill.hpp>

#include <cstddef>
#include <cstdint>

// The three passes of a convolution by cuDNN. The host's work space in the calls is empty here.
namespace lockstep::cuda {

// images[n, c, …] += bias[c]
template <class T>
struct AddChannelBias {
  View<const T> bias;
  View<T> images;
  std::size_t pixels;  // of one channel

  LOCKSTEP_HD void operator()(std::size_t i) const { images[i] += of(i); }

  LOCKSTEP_HD T of(std::size_t i) const {
    return bias[divided(divided(i, pixels).quotient, bias.size).remainder];
  }
};

template <class T>
requires(sizeof(T) == 4) struct Fours<AddChannelBias<T>> {
  static constexpr bool possible = true;
  LOCKSTEP_HD static bool fit(const AddChannelBias<T>& kernel) {
    return kernel.pixels % 4 == 0 && has_fours(kernel.images);
  }
  LOCKSTEP_HD static void run(const AddChannelBias<T>& kernel, std::size_t i) {
    const T bias = kernel.of(4 * i);
    Four<T> four = read_four(View<const T>{kernel.images.data, kernel.images.size}, i);
    for (T& each : four.of) each += bias;
    write_four(kernel.images, i, four);
  }
};

// Runs a pass on a stream. A sum over no elements is set to zero here: cuDNN takes no operand
// without elements.
template <class Pass, class T>
void run_conv(CudaStream& on, const detail::ConvGeometry& g, const View<const T>& first,
              const View<const T>& second, const View<T>& out) {
  if (first.size == 0 || second.size == 0 || out.size == 0) {
    return launch_kernel(on, out.size, detail::FillKernel<T>{out, T(0)});
  }
  const ConvKey key = conv_key(g, cudnn_type<T>);
  const CudnnOnStream cudnn(on);
  const ConvPlan<Pass>& plan = per_device<ConvPlans<Pass>>(on.device()).plan(cudnn, key);
  const GpuScratch workspace(on, plan.workspace);
  const T alpha = 1;
  const T beta = 0;
  check(Pass::run(cudnn.handle(), &alpha, plan.first(), first.data, plan.second(), second.data,
                  plan.descriptors.conv.get(), plan.algorithm, workspace.data(), plan.workspace,
                  &beta, plan.out(), out.data),
        Pass::run_name, on.device());
}

template <class T>
struct CudaCall<detail::ConvForward<T>> {
  using kernels = Kernels<detail::FillKernel<T>, AddChannelBias<T>>;

  static void run(detail::StreamState& stream, const detail::ConvForward<T>& call) {
    run_conv<ForwardPass>(static_cast<CudaStream&>(stream), call.g, call.in, call.weight, call.out);
    if (call.bias.data == nullptr) return;
    launch_kernel(
        stream, call.out.size,
        AddChannelBias<T>{call.bias, call.out, static_cast<std::size_t>(call.g.pixels())});
  }
};

template <class T>
struct CudaCall<detail::ConvInputGrad<T>> {
  using kernels = Kernels<detail::FillKernel<T>>;

  static void run(detail::StreamState& stream, const detail::ConvInputGrad<T>& call) {
    run_conv<InputGradPass>(static_cast<CudaStream&>(stream), call.g, call.weight, call.grad,
                            call.in_grad);
  }
};

template <class T>
struct CudaCall<detail::ConvWeightGrad<T>> {
  using kernels = Kernels<detail::FillKernel<T>>;

  static void run(detail::StreamState& stream, const detail::ConvWeightGrad<T>& call) {
    run_conv<WeightGradPass>(static_cast<CudaStream&>(stream), call.g, call.in, call.grad,
                             call.weight_grad);
  }
};

using ConvCalls = Kernels<detail::ConvForward<float>, detail::ConvForward<double>,
                          detail::ConvInputGrad<float>, detail::ConvInputGrad<double>,
                          detail::ConvWeightGrad<float>, detail::ConvWeightGrad<double>>;

}  // namespace lockstep::cuda
