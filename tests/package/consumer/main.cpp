// SPDX-License-Identifier: Apache-2.0
#if defined(WITH_CUDA)
#include <lockstep/cuda.hpp>
#endif
// All headers, where that takes the compiler little.
#if defined(LOCKSTEP_SEPARATE_COMPILATION)
#include <lockstep/lockstep.hpp>
#else
#include <lockstep/nn/linear.hpp>
#include <lockstep/tensor/creation.hpp>
#endif

// A matrix product, so that the libraries behind lockstep are linked, too. With the CUDA side it
// is linked, and the program starts on a machine without a driver.
int main() {
#if defined(WITH_CUDA)
  if (lockstep::no_cuda_reason() == "built without CUDA") return 2;
#endif
  lockstep::nn::Linear layer{3, 2};
  const lockstep::Tensor y = layer(lockstep::ones({4, 3}));
  return y.size(0) == 4 && y.size(1) == 2 ? 0 : 1;
}
