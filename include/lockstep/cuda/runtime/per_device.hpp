// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/runtime/logical_devices.hpp>
#include <lockstep/device/device.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <new>

namespace lockstep::cuda {

// The T of a CUDA device: made as T(device) at its first use, and never destroyed. If T holds a
// library's handle, the caller has made the device's GPU current: libraries bind their handles to
// it.
//
// Threads: any; a T guards its own members. One T is made at a time, so making one asks for no
// other.
template <class T>
T& per_device(Device device) {
  static constinit std::array<std::atomic<T*>, detail::kMaxCudaDevices> all{};
  static constinit std::mutex making;
  std::atomic<T*>& slot = all.at(static_cast<std::size_t>(device.index));
  if (T* const made = slot.load(std::memory_order_acquire)) return *made;
  const std::lock_guard lock(making);
  if (T* const made = slot.load(std::memory_order_relaxed)) return *made;
  T* const made = new T(device);
  slot.store(made, std::memory_order_release);
  return *made;
}

// The T of a device's GPU, which its logical devices share. It is there without being made, so that
// functions that must not throw may ask for it, and is never destroyed.
//
// Threads: any; a T guards its own members.
template <class T>
T& per_gpu(Device device) {
  using All = std::array<T, detail::kMaxCudaDevices>;
  alignas(All) static std::byte memory[sizeof(All)];
  static All& all = *::new (memory) All;
  return all[static_cast<std::size_t>(gpu_of(device))];
}

}  // namespace lockstep::cuda
