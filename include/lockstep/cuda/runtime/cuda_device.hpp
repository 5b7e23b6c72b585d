// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/cuda/memory/memory_pool.hpp>
#include <lockstep/cuda/memory/staging.hpp>
#include <lockstep/cuda/runtime/cuda_event.hpp>
#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/cuda/runtime/per_device.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/non_copyable.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <memory>

namespace lockstep::cuda {

// All that lockstep keeps for one CUDA device. Made at the device's first use and never destroyed.
//
// Threads: any; each member is safe by itself.
struct CudaDevice : detail::NonCopyable {
  static constexpr std::size_t kPoolStreams = 8;

  explicit CudaDevice(Device at)
      : events(at),
        memory(at),
        staging(at),
        compute(at, events),
        copy(at, events),
        bridge(at, events) {
    detail::check_not_forked();
    [[maybe_unused]] static const int told =
        std::atexit([] { detail::gpus_ending.store(true, std::memory_order_relaxed); });
    for (auto& stream : pool) stream = std::make_unique<CudaStream>(at, events);
    int none = -1;
    (void)first_used.compare_exchange_strong(none, at.index, std::memory_order_relaxed);
  }

  EventPool events;
  MemoryPool memory;
  Staging staging;
  CudaStream compute;
  CudaStream copy;
  // Copies that were issued to the stream of a host device run here.
  CudaStream bridge;
  std::array<std::unique_ptr<CudaStream>, kPoolStreams> pool;
  std::atomic<std::size_t> next_pool{0};

  // The index of the device that was used first, or -1. What belongs to no device but needs a
  // context (page-locked memory) takes that of this one, so that no GPU gets one that nobody asked
  // for.
  static inline constinit std::atomic<int> first_used{-1};

  // What is kept for the device, which exists.
  static CudaDevice& at(Device device) { return per_device<CudaDevice>(device); }
};

}  // namespace lockstep::cuda
