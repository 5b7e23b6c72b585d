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
  detail::ChannelGradientCall<T> call;

  LOCKSTEP_HD void operator()(std::size_t i) const {
    const std::size_t c = divided(divided(i, call.axis.inner).quotient, call.axis.count).remainder;
    call.out[i] =
        call.grad[i] * call.scale[c] + ((call.x[i] - call.mean[c]) * call.slope[c] + call.shift[c]);
  }
};

template <class T>
struct CudaCall<detail::ChannelGradientCall<T>> : ElementCall<ChannelGradientElements<T>> {};

using BatchNormCalls = ForFloating<detail::ChannelGradientCall>::type;

}  // namespace lockstep::cuda
