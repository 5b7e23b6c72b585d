// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host/host_allocator.hpp>
#include <lockstep/cuda/runtime/cuda_device.hpp>
#include <lockstep/cuda/runtime/device_guard.hpp>
#include <lockstep/cuda/runtime/error.hpp>
#include <lockstep/device/device.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>

namespace lockstep::cuda {

// The GPU in whose context all page-locked memory is taken and given back: that which was used
// first when this was first asked for.
inline Device device_of_pinned() {
  static const Device device(DeviceType::cuda,
                             std::max(CudaDevice::first_used.load(std::memory_order_relaxed), 0));
  return device;
}

// Page-locked memory from the driver; null if there is none, an error for all else.
inline void* take_pinned(std::size_t bytes) {
  const Device device = device_of_pinned();
  const DeviceGuard guard(device);
  void* data = nullptr;
  const cudaError_t status = cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return nullptr;
  }
  check(status, "cudaHostAlloc", device);
  return data;
}

// Gives it back. A driver that fails, or that has ended with the process, has taken it already.
inline void give_back_pinned(void* data) noexcept {
  try {
    const DeviceGuard guard(device_of_pinned());
    if (cudaFreeHost(data) != cudaSuccess) (void)cudaGetLastError();
  } catch (const std::exception&) {
    // The GPU has failed, and the memory stays taken.
  }
}

// Page-locked memory on plain `cpu`, which the copy engines of all GPUs reach. Taking it from the
// driver stops the GPUs and costs up to milliseconds, so that it is kept and reused as ordinary
// memory is: once the streams that used a block have come past it.
//
// Having it costs nothing before the first tensor.
inline detail::HostAllocator& pinned_allocator() {
  static auto& memory = *new detail::HostAllocator(Device(), {&take_pinned, &give_back_pinned});
  return memory;
}

}  // namespace lockstep::cuda
