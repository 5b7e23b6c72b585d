// SPDX-License-Identifier: Apache-2.0

// The half of the program that nvcc compiles: the CUDA side of the library, and the one line that a
// functor of the program's own takes.
#include <lockstep/cuda.hpp>

#include "functor.hpp"

namespace {
[[maybe_unused]] const bool filled = [] {
  lockstep::cuda::fill_slots(lockstep::cuda::Kernels<cuda_joint::OwnKernel>{});
  return true;
}();
}  // namespace
