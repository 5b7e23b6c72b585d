// SPDX-License-Identifier: Apache-2.0

// The CUDA side of lockstep, and the twins of its kernels.
#include <cudasim/twins.hpp>

#include <lockstep/cuda.hpp>

namespace {

namespace ls = lockstep;
using cudasim::twins::register_kernels;
using ls::cuda::CudaCall;
using ls::cuda::Kernels;

template <class... Call>
void register_calls(Kernels<Call...>) {
  (register_kernels(typename CudaCall<Call>::kernels{}), ...);
}

[[maybe_unused]] const bool registered = [] {
  register_kernels(ls::cuda::AllKernels{});
  register_calls(ls::cuda::AllCalls{});
  return true;
}();

}  // namespace
