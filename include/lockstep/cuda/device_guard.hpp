// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/error.hpp>
#include <lockstep/cuda/logical_devices.hpp>
#include <lockstep/device/device.hpp>

#include <cuda_runtime_api.h>

namespace lockstep::cuda {

// Makes a device's GPU the calling thread's current one until destroyed. Kernels, and whatever is
// created without naming a stream, go to the current GPU.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device) {
    check(cudaGetDevice(&before_), "cudaGetDevice", device);
    const int gpu = gpu_of(device);
    if (gpu == before_) return;
    check(cudaSetDevice(gpu), "cudaSetDevice", device);
    changed_ = true;
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard() {
    if (changed_ && cudaSetDevice(before_) != cudaSuccess) (void)cudaGetLastError();
  }

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace lockstep::cuda
