// SPDX-License-Identifier: Apache-2.0

// The half of the program that nvcc compiles: it parses the library's headers as every other file
// does, compiles kernels from the functors that main.cpp uses by name, and puts them into their
// slots before main.
#include <lockstep/autograd/accumulate_grad.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/tensor/fill.hpp>

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

namespace {

namespace ls = lockstep;

template <class F>
__global__ void grid_stride_kernel(std::size_t count, F functor) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    functor(i);
  }
}

template <class F>
void launch_kernel(ls::detail::StreamState&, std::size_t count, const void* functor) {
  const unsigned blocks = static_cast<unsigned>((count + 255) / 256);
  grid_stride_kernel<<<blocks, 256>>>(count, *static_cast<const F*>(functor));
}

template <class... F>
void fill_slots() {
  (ls::detail::kernel_slot<F>.store(&launch_kernel<F>, std::memory_order_release), ...);
}

int count_devices(std::string* reason) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess) return count;
  *reason = cudaGetErrorString(status);
  return 0;
}

const bool registered = [] {
  fill_slots<ls::detail::FillKernel<float>, ls::detail::AddInPlaceKernel<float>>();
  ls::detail::cuda_device_counter.store(&count_devices, std::memory_order_release);
  return true;
}();

}  // namespace
