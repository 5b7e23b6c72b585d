// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/cuda/launch/strided_index.hpp>
#include <lockstep/ops/kernels/batch_norm_kernels.hpp>

#include <cstddef>

namespace lockstep::cuda {

template <class T>
struct ChannelGradientElements {
  View<const T> grad;
  View<const T> x;
  View<const T> mean;
  View<const T> scale;
  View<const T> slope;
  View<const T> shift;
  View<T> out;
  std::size_t channels;
  std::size_t inner;
  LOCKSTEP_HD void operator()(std::size_t i) const {
    const std::size_t c = divided(divided(i, inner).quotient, channels).remainder;
    out[i] = grad[i] * scale[c] + ((x[i] - mean[c]) * slope[c] + shift[c]);
  }
};

template <class T>
struct CudaCall<lockstep::detail::ChannelGradientCall<T>> {
  using kernels = Kernels<ChannelGradientElements<T>>;
  static void run(lockstep::detail::StreamState& stream,
                  const lockstep::detail::ChannelGradientCall<T>& call) {
    launch_kernel(
        stream, call.out.size,
        ChannelGradientElements<T>{call.grad, call.x, call.mean, call.scale, call.slope, call.shift,
                                   call.out, call.axis.count, call.axis.inner});
  }
};

using BatchNormKernels = Join<ForFloating<lockstep::detail::MoveRunningKernel>::type,
                              ForFloating<lockstep::detail::BatchScaleKernel>::type,
                              ForFloating<lockstep::detail::BatchGradientKernel>::type>::type;
using BatchNormCalls = ForFloating<lockstep::detail::ChannelGradientCall>::type;

}  // namespace lockstep::cuda
