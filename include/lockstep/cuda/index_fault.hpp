// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/device_guard.hpp>
#include <lockstep/cuda/error.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/ops/embedding_kernels.hpp>
#include <lockstep/ops/loss_kernels.hpp>

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <utility>

// What a kernel does that meets an index outside its range: it uses no memory there, and tells the
// host, which throws when it next waits for that stream, or for another one once that has ended.
namespace lockstep::cuda {

enum class Indexed : unsigned { nll_loss, cross_entropy, embedding };

// One index that was outside; where there are several, any of them.
struct IndexFault {
  unsigned claimed = 0;  // 1 from the first one on
  Indexed operation = Indexed::nll_loss;
  std::int64_t index = 0;
  std::size_t position = 0;
  std::size_t bound = 0;
};

// True if an index is within [0, bound); otherwise `fault` has it.
LOCKSTEP_HD inline bool in_range(const View<IndexFault>& fault, Indexed operation,
                                 std::int64_t index, std::size_t position, std::size_t bound) {
  if (index >= 0 && static_cast<std::size_t>(index) < bound) return true;
#if defined(__CUDA_ARCH__)
  if (atomicExch(&fault.data->claimed, 1U) != 0) return false;
#else
  if (std::exchange(fault.data->claimed, 1U) != 0) return false;
#endif
  fault.data->operation = operation;
  fault.data->index = index;
  fault.data->position = position;
  fault.data->bound = bound;
  return false;
}

// The IndexFault of each stream that needed one: page-locked memory, written by the GPU where it
// is and read by the host once it has waited for the stream.
//
// Threads: any; `mutex_` guards the map. Lives until the process ends.
class IndexFaults {
 public:
  static IndexFaults& instance() {
    static IndexFaults& faults = *new IndexFaults;
    return faults;
  }

  View<IndexFault> of(const lockstep::detail::StreamState& stream) {
    const std::lock_guard lock(mutex_);
    IndexFault*& fault = faults_[&stream];
    if (!fault) {
      const DeviceGuard guard(stream.device());
      void* memory = nullptr;
      check(cudaHostAlloc(&memory, sizeof(IndexFault), cudaHostAllocPortable), "cudaHostAlloc",
            stream.device());
      fault = new (memory) IndexFault;
      any_.store(true, std::memory_order_release);
    }
    return {fault, 1};
  }

  // To be called after the host has waited for a stream: throws the host's own IndexError for what
  // its kernels have met since the last call, or those of any stream that has ended its work: a
  // replica's loss is waited for on another device.
  void raise(const lockstep::detail::StreamState& stream) {
    if (!any_.load(std::memory_order_acquire)) return;
    IndexFault fault;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [of, place] : faults_) {
        // Only then may the host read it.
        if (!place || (of != &stream && !of->idle()) || place->claimed == 0) continue;
        fault = std::exchange(*place, IndexFault{});
        break;
      }
    }
    if (fault.claimed == 0) return;
    if (fault.operation == Indexed::embedding) {
      (void)lockstep::detail::checked_row(fault.index, fault.position, fault.bound);
    } else {
      (void)lockstep::detail::checked_label(
          fault.operation == Indexed::nll_loss ? "nll_loss" : "cross_entropy", fault.index,
          fault.position, fault.bound);
    }
  }

 private:
  std::mutex mutex_;
  std::map<const lockstep::detail::StreamState*, IndexFault*> faults_;
  std::atomic<bool> any_{false};
};

}  // namespace lockstep::cuda
