// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/ops/kernels/attention_kernels.hpp>
#include <lockstep/ops/kernels/elementwise_kernels.hpp>

namespace lockstep::cuda {

template <class T>
using MaskBiasKernel = lockstep::detail::UnaryKernel<bool, T, lockstep::detail::MaskBias<T>>;

using AttentionKernels =
    Join<ForFloating<MaskBiasKernel>::type, ForFloating<lockstep::detail::CausalBias>::type>::type;

}  // namespace lockstep::cuda
