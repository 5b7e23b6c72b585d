// SPDX-License-Identifier: Apache-2.0

// The CUDA side of lockstep, and the twins of its kernels.
#include <cudasim/twins.hpp>

#include <lockstep/cuda.hpp>

namespace {

namespace ls = lockstep;
using cudasim::twins::register_kernels;
[[maybe_unused]] const bool registered = [] {
  register_kernels(ls::cuda::AllKernels{});
  return true;
}();

}  // namespace
