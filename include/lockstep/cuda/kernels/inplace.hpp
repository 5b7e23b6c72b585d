// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/accumulate_grad.hpp>
#include <lockstep/cuda/kernel_list.hpp>
#include <lockstep/ops/elementwise_kernels.hpp>

namespace lockstep::cuda {

using InplaceKernels = Join<ForNumeric<lockstep::detail::AddInPlaceKernel>::type,
                            ForNumeric<lockstep::detail::ScaleKernel>::type>::type;

}  // namespace lockstep::cuda
