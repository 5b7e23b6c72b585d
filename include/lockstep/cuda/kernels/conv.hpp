// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/kernels/elementwise.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/libraries/conv_plan.hpp>
#include <lockstep/cuda/libraries/cudnn.hpp>
#include <lockstep/cuda/memory/scratch.hpp>
#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/ops/kernels/conv_kernels.hpp>
#include <lockstep/ops/kernels/elementwise_kernels.hpp>
#include <lockstep/tensor/fill.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/walk.hpp>

// The three passes of a convolution by cuDNN. The host's work space in the calls is empty here.
namespace lockstep::cuda {

// A sum over no elements is set to zero here: cuDNN takes no operand without elements.
template <class T, detail::ConvPass pass>
struct CudaCall<detail::ConvCall<T, pass>> {
  using AddBias = detail::BroadcastCall<T, T, detail::Plus<T>>;
  using kernels = Kernels<detail::FillKernel<T>, AddBias>;

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
    const Shape images{call.g.batch, call.g.out_channels, call.g.pixels()};
    const auto walk = detail::make_walk<2>(images, {contiguous_strides(images), Shape{0, 1, 0}});
    const View<const T> sums{call.out.data, call.out.size};
    CudaCall<AddBias>::run(stream, {sums, call.bias, call.out, walk, {}});
  }
};

template <class T>
using ConvCallsOf = Kernels<detail::ConvCall<T, detail::ConvPass::forward>,
                            detail::ConvCall<T, detail::ConvPass::input_grad>,
                            detail::ConvCall<T, detail::ConvPass::weight_grad>>;
using ConvCalls = ForFloating<ConvCallsOf>;

}  // namespace lockstep::cuda
