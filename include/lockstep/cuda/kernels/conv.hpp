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
  static bool fit(const AddChannelBias<T>& kernel) {
    return kernel.pixels % 4 == 0 && has_fours(kernel.images);
  }
  LOCKSTEP_HD static void run(const AddChannelBias<T>& kernel, std::size_t i) {
    const T bias = kernel.of(4 * i);
    Four<T> four = read_four(View<const T>{kernel.images.data, kernel.images.size}, i);
    for (T& each : four.of) each += bias;
    write_four(kernel.images, i, four);
  }
};

// A sum over no elements is set to zero here: cuDNN takes no operand without elements.
template <class T, detail::ConvPass pass>
struct CudaCall<detail::ConvCall<T, pass>> {
  using kernels = Kernels<detail::FillKernel<T>, AddChannelBias<T>>;

  static void run(detail::StreamState& stream, const detail::ConvCall<T, pass>& call) {
    auto& on = static_cast<CudaStream&>(stream);
    if (call.first.size == 0 || call.second.size == 0 || call.out.size == 0) {
      launch_kernel(on, call.out.size, detail::FillKernel<T>{call.out, T(0)});
    } else {
      using Pass = LibraryPass<pass>;
      const ConvKey key = conv_key(call.g, cudnn_type<T>);
      const CudnnOnStream cudnn(on);
      const auto& plan = cudnn.plan<ConvPlan<Pass>>(key);
      const GpuScratch workspace(on, plan.workspace);
      const T alpha = 1;
      const T beta = 0;
      check(Pass::run(cudnn.handle(), &alpha, plan.first(), call.first.data, plan.second(),
                      call.second.data, plan.descriptors.conv.get(), plan.algorithm,
                      workspace.data(), plan.workspace, &beta, plan.out(), call.out.data),
            Pass::run_name, on.device());
    }
    if (call.bias.data == nullptr) return;
    launch_kernel(
        stream, call.out.size,
        AddChannelBias<T>{call.bias, call.out, static_cast<std::size_t>(call.g.pixels())});
  }
};

template <class T>
using ConvCallsOf = Kernels<detail::ConvCall<T, detail::ConvPass::forward>,
                            detail::ConvCall<T, detail::ConvPass::input_grad>,
                            detail::ConvCall<T, detail::ConvPass::weight_grad>>;
using ConvCalls = ForFloating<ConvCallsOf>;

}  // namespace lockstep::cuda
