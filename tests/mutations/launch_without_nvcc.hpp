// SPDX-License-Identifier: Apache-2.0
#pragma once

// In front of lockstep, whose kernels name what is declared here.
#include <device_launch_parameters.h>

#include <lockstep/cuda/launch/kernel.hpp>

#include <cudasim/twins.hpp>

// Launches of kernels for the simulated runtime, which runs their twins, in a file that any
// compiler takes: a mutation of what launches them needs no nvcc. The kernels themselves never run;
// this is what they would look at.
const uint3 threadIdx{};
const uint3 blockIdx{};
const dim3 blockDim;
const dim3 gridDim;

namespace lockstep::testing {

template <class... F>
void register_kernels(cuda::Kernels<F...> kernels) {
  cuda::fill_slots(kernels);
  cudasim::twins::register_kernels(kernels);
}

}  // namespace lockstep::testing
