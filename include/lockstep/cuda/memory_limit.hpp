// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/cuda_device.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/error.hpp>

#include <cstddef>

namespace lockstep::cuda {

// Lets tensors on a CUDA device take at most so many bytes, all together; SIZE_MAX for as many as
// there are. What is in use already stays.
//
// **Torch counterpart.** torch.cuda.set_per_process_memory_fraction.
// **Threads and exceptions.** Any thread; allocations from now on follow it, and one that goes
// beyond is an OutOfMemoryError. A DeviceError for a device that is not there or no GPU.
// **Example.** ls::cuda::set_memory_limit("cuda:0", std::size_t{8} << 30);
inline void set_memory_limit(Device device, std::size_t bytes) {
  check<DeviceError>(device.is_cuda(), "set_memory_limit: expected a CUDA device, got ", device);
  check_device(device);
  CudaDevice::at(device).memory.set_limit(bytes);
}

}  // namespace lockstep::cuda
