// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>

#include <cuda_runtime_api.h>

#include <atomic>
#include <string>

namespace lockstep::cuda {

// How lockstep's CUDA devices lie on the GPUs of the machine: one each, or, where
// LOCKSTEP_CUDA_DEVICES asks for more devices than there are GPUs, several on one in turn. A
// logical device has streams of its own; its memory is the GPU's.
//
// The number of GPUs. Whoever counts the devices first, which freezes their list, writes it before
// anything else can ask.
inline constinit std::atomic<int> gpus_of_machine{0};

// The GPU that a device, which exists, lies on, as the CUDA runtime counts them.
inline int gpu_of(Device device) {
  if (gpus_of_machine.load(std::memory_order_relaxed) == 0) check_device(device);  // counts them
  return device.index % gpus_of_machine.load(std::memory_order_relaxed);
}

// What `device_count` asks: any failure means that there are none, and says why.
inline int count_devices(std::string* reason) {
  (void)detail::forked();  // the driver does not survive a fork from here on
  int gpus = 0;
  const cudaError_t status = cudaGetDeviceCount(&gpus);
  if (status != cudaSuccess || gpus == 0) {
    *reason = status == cudaSuccess ? "there is no GPU" : cudaGetErrorString(status);
    return 0;
  }
  gpus_of_machine.store(gpus, std::memory_order_relaxed);
  const int count = detail::requested_cuda_count().value_or(gpus);
  if (count == 0) *reason = "LOCKSTEP_CUDA_DEVICES is 0";
  return count;
}

}  // namespace lockstep::cuda
