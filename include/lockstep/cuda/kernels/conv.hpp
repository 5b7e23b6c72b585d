// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/conv_plan.hpp>
#include <lockstep/cuda/cuda_stream.hpp>
#include <lockstep/cuda/cudnn.hpp>
#include <lockstep/cuda/kernel.hpp>
#include <lockstep/cuda/scratch.hpp>
#include <lockstep/ops/conv_kernels.hpp>
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
  std::int64_t pixels;  // of one channel

  LOCKSTEP_HD void operator()(std::size_t i) const {
    const std::size_t channel = i / static_cast<std::size_t>(pixels) % bias.size;
    images[i] += bias[channel];
  }
};

// Calls pass(cudnn, plan, work space, its size) with the plan for a geometry on a stream.
template <class Pass, class T, class Run>
void run_conv(CudaStream& on, const lockstep::detail::ConvGeometry& g, const char* name,
              const Run& pass) {
  const ConvKey key = conv_key(g, cudnn_type<T>);
  const CudnnOnStream cudnn(on);
  const ConvPlan<Pass>& plan = per_device<ConvPlans<Pass>>(on.device()).plan(cudnn, key);
  const Scratch workspace(on, plan.workspace);
  check(pass(cudnn.handle(), plan, workspace.data(), plan.workspace), name, on.device());
}

// What a sum over nothing leaves: cuDNN takes no operand without elements.
template <class T>
void zero(CudaStream& on, const View<T>& out) {
  launch_kernel(on, out.size, lockstep::detail::FillKernel<T>{out, T(0)});
}

template <class T>
struct CudaCall<lockstep::detail::ConvForward<T>> {
  using kernels = Kernels<lockstep::detail::FillKernel<T>, AddChannelBias<T>>;

  static void run(lockstep::detail::StreamState& stream,
                  const lockstep::detail::ConvForward<T>& call) {
    auto& on = static_cast<CudaStream&>(stream);
    if (call.out.size == 0) return;
    if (call.in.size == 0 || call.weight.size == 0) {
      zero(on, call.out);
    } else {
      run_conv<ForwardPass, T>(
          on, call.g, "cudnnConvolutionForward",
          [&](cudnnHandle_t handle, const auto& plan, void* workspace, std::size_t bytes) {
            const T alpha = 1;
            const T beta = 0;
            const ConvDescriptors& d = plan.descriptors;
            return cudnnConvolutionForward(handle, &alpha, d.x.get(), call.in.data, d.w.get(),
                                           call.weight.data, d.conv.get(), plan.algorithm,
                                           workspace, bytes, &beta, d.y.get(), call.out.data);
          });
    }
    if (call.bias.data == nullptr) return;
    launch_kernel(stream, call.out.size, AddChannelBias<T>{call.bias, call.out, call.g.pixels()});
  }
};

template <class T>
struct CudaCall<lockstep::detail::ConvInputGrad<T>> {
  using kernels = Kernels<lockstep::detail::FillKernel<T>>;

  static void run(lockstep::detail::StreamState& stream,
                  const lockstep::detail::ConvInputGrad<T>& call) {
    auto& on = static_cast<CudaStream&>(stream);
    if (call.in_grad.size == 0) return;
    if (call.grad.size == 0 || call.weight.size == 0) return zero(on, call.in_grad);
    run_conv<InputGradPass, T>(
        on, call.g, "cudnnConvolutionBackwardData",
        [&](cudnnHandle_t handle, const auto& plan, void* workspace, std::size_t bytes) {
          const T alpha = 1;
          const T beta = 0;
          const ConvDescriptors& d = plan.descriptors;
          return cudnnConvolutionBackwardData(
              handle, &alpha, d.w.get(), call.weight.data, d.y.get(), call.grad.data, d.conv.get(),
              plan.algorithm, workspace, bytes, &beta, d.x.get(), call.in_grad.data);
        });
  }
};

template <class T>
struct CudaCall<lockstep::detail::ConvWeightGrad<T>> {
  using kernels = Kernels<lockstep::detail::FillKernel<T>>;

  static void run(lockstep::detail::StreamState& stream,
                  const lockstep::detail::ConvWeightGrad<T>& call) {
    auto& on = static_cast<CudaStream&>(stream);
    if (call.weight_grad.size == 0) return;
    if (call.in.size == 0 || call.grad.size == 0) return zero(on, call.weight_grad);
    run_conv<WeightGradPass, T>(
        on, call.g, "cudnnConvolutionBackwardFilter",
        [&](cudnnHandle_t handle, const auto& plan, void* workspace, std::size_t bytes) {
          const T alpha = 1;
          const T beta = 0;
          const ConvDescriptors& d = plan.descriptors;
          return cudnnConvolutionBackwardFilter(
              handle, &alpha, d.x.get(), call.in.data, d.y.get(), call.grad.data, d.conv.get(),
              plan.algorithm, workspace, bytes, &beta, d.w.get(), call.weight_grad.data);
        });
  }
};

using ConvCalls =
    Kernels<lockstep::detail::ConvForward<float>, lockstep::detail::ConvForward<double>,
            lockstep::detail::ConvInputGrad<float>, lockstep::detail::ConvInputGrad<double>,
            lockstep::detail::ConvWeightGrad<float>, lockstep::detail::ConvWeightGrad<double>>;

}  // namespace lockstep::cuda
