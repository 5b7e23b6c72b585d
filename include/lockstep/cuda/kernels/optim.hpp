// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/optim/kernels.hpp>

namespace lockstep::cuda {

using OptimKernels = Join<ForFloating<lockstep::detail::SgdKernel>::type,
                          ForFloating<lockstep::detail::SgdMomentumKernel>::type,
                          ForFloating<lockstep::detail::AdamKernel>::type>::type;

}  // namespace lockstep::cuda
