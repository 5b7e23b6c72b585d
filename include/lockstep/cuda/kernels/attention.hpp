// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/kernel_list.hpp>
#include <lockstep/ops/attention_kernels.hpp>
#include <lockstep/ops/elementwise_kernels.hpp>

namespace lockstep::cuda {

template <class T>
using MaskBiasKernel = lockstep::detail::UnaryKernel<bool, T, lockstep::detail::MaskBias<T>>;

using AttentionKernels =
    Join<ForFloating<MaskBiasKernel>::type, ForFloating<lockstep::detail::CausalBias>::type>::type;

}  // namespace lockstep::cuda
