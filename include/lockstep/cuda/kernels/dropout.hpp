// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/ops/kernels/dropout_kernel.hpp>

namespace lockstep::cuda {

using DropoutKernels = ForFloating<lockstep::detail::DropoutKernel>::type;

}  // namespace lockstep::cuda
