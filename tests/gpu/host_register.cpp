// SPDX-License-Identifier: Apache-2.0

// Page-locking memory that is there already, which the simulated runtime does not know: it stays
// what it was. Weak, so that a runtime that knows more is taken in its place.
#include <cuda_runtime_api.h>

#include <cstddef>

extern "C" {

__attribute__((weak)) cudaError_t cudaHostRegister(void*, std::size_t, unsigned) {
  return cudaSuccess;
}

__attribute__((weak)) cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }
}
