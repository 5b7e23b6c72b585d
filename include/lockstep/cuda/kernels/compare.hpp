// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/kernels/elementwise.hpp>
#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/ops/kernels/elementwise_kernels.hpp>
#include <lockstep/tensor/dtype.hpp>

#include <cstdint>

namespace lockstep::cuda {

template <class T>
using EqualKernel = lockstep::detail::BinaryKernel<T, bool, lockstep::detail::Equal<T>>;
template <class T>
using EqualToKernel = lockstep::detail::UnaryKernel<T, bool, lockstep::detail::EqualTo<T>>;
template <class T>
using EqualCall = lockstep::detail::BroadcastCall<T, bool, lockstep::detail::Equal<T>>;

using CompareKernels = Join<ForEach<EqualKernel, float, double, Half, BFloat16, std::int64_t,
                                    std::int32_t, std::uint8_t, bool>::type,
                            ForNumeric<EqualToKernel>::type>::type;
using CompareCalls = ForEach<EqualCall, float, double, Half, BFloat16, std::int64_t, std::int32_t,
                             std::uint8_t, bool>::type;

}  // namespace lockstep::cuda
