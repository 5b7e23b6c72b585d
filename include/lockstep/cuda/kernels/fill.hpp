// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/fill.hpp>

#include <cstdint>

namespace lockstep::cuda {

using FillKernels = ForEach<lockstep::detail::FillKernel, float, double, Half, BFloat16,
                            std::int64_t, std::int32_t, std::uint8_t, bool>::type;

}  // namespace lockstep::cuda
