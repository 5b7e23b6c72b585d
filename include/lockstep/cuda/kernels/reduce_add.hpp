// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/parallel/comm/reduce_add.hpp>

namespace lockstep::cuda {

using ReduceAddKernels = ForNumeric<comm::detail::AddKernel>::type;

}  // namespace lockstep::cuda
