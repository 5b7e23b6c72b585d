// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/kernels/elementwise.hpp>
#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/ops/kernels/elementwise_kernels.hpp>

namespace lockstep::cuda {

template <class T>
using CompareKernel = lockstep::detail::BinaryKernel<T, bool, lockstep::detail::Compare<T>>;
template <class T>
using CompareToKernel = lockstep::detail::UnaryKernel<T, bool, lockstep::detail::CompareTo<T>>;
template <class T>
using CompareCall = lockstep::detail::BroadcastCall<T, bool, lockstep::detail::Compare<T>>;

using CompareKernels =
    Join<ForNumeric<CompareKernel>::type, ForNumeric<CompareToKernel>::type>::type;
using CompareCalls = ForNumeric<CompareCall>::type;

}  // namespace lockstep::cuda
