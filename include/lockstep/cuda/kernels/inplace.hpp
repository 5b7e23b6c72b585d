// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine/accumulate_grad.hpp>
#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/ops/kernels/elementwise_kernels.hpp>

namespace lockstep::cuda {

using InplaceKernels = Join<ForNumeric<lockstep::detail::AddInPlaceKernel>::type,
                            ForNumeric<lockstep::detail::ScaleKernel>::type>::type;

}  // namespace lockstep::cuda
