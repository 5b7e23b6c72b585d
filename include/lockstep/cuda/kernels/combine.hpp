// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/distributed/thread/combine_kernel.hpp>
#include <lockstep/tensor/half.hpp>

#include <cstdint>

namespace lockstep::cuda {

using CombineKernels = ForEach<distributed::detail::CombineKernel, float, double, std::int64_t,
                               std::int32_t, std::uint8_t, bool, Half, BFloat16>::type;

}  // namespace lockstep::cuda
