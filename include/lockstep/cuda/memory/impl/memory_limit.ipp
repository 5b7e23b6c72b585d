// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/memory/memory_limit.hpp>
#include <lockstep/cuda/runtime/cuda_device.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/error.hpp>

#include <cstddef>

namespace lockstep::cuda {

LOCKSTEP_INLINE void set_memory_limit(Device device, std::size_t bytes) {
  check<DeviceError>(device.is_cuda(), "set_memory_limit: expected a CUDA device, got ", device);
  check_device(device);
  CudaDevice::at(device).memory.set_limit(bytes);
}

}  // namespace lockstep::cuda
