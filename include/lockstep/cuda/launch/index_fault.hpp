// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/runtime/device_guard.hpp>
#include <lockstep/cuda/runtime/error.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/never_destroyed.hpp>
#include <lockstep/tensor/row_kernels.hpp>

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <optional>

// How a kernel tells of an index outside its range: it touches no memory there, and writes the
// fault down for the host, which throws when it next waits for that stream, or for another one once
// that has ended.
namespace lockstep::cuda {

// An index that was outside [0, bound), and its place among an operation's indices.
struct OutsideIndex {
  detail::RowsOf of = {};
  std::int64_t index = 0;
  std::size_t position = 0;
  std::size_t bound = 0;
};

// One index that was outside; where there are several, any of them.
//
// It counts the faults that kernels have claimed and written, and those that the host has read.
// Each count has one side that writes it, since no operation on host memory is atomic for both
// sides on every machine: kernels, which settle among themselves who writes the next fault, and the
// host, which lets them go on by `taken`. So either side may look at any time, also while another
// rank's kernels run on the stream.
struct IndexFault {
  unsigned claimed = 0;  // by kernels alone, atomically: the faults that one of them has claimed
  unsigned written = 0;  // by kernels alone: those that it has written, which publishes `met`
  unsigned taken = 0;    // by the host alone: those that it has read, after which another may come
  OutsideIndex met;      // of the kernel that claimed it until `written`, then of the host
};

// True if an index is within [0, bound); otherwise `fault` gets it, unless it has another.
LOCKSTEP_HD inline bool in_range(const View<IndexFault>& fault, detail::RowsOf of,
                                 std::int64_t index, std::size_t position, std::size_t bound) {
  if (index >= 0 && static_cast<std::size_t>(index) < bound) return true;
  IndexFault& place = *fault.data;
#if defined(__CUDA_ARCH__)
  const unsigned number = *const_cast<volatile unsigned*>(&place.taken);
  if (atomicCAS(&place.claimed, number, number + 1) != number) return false;
  __threadfence_system();
#else
  unsigned number = std::atomic_ref(place.taken).load(std::memory_order_acquire);
  if (!std::atomic_ref(place.claimed).compare_exchange_strong(number, number + 1)) return false;
#endif
  place.met = {of, index, position, bound};
#if defined(__CUDA_ARCH__)
  __threadfence_system();
  *const_cast<volatile unsigned*>(&place.written) = number + 1;
#else
  std::atomic_ref(place.written).store(number + 1, std::memory_order_release);
#endif
  return false;
}

// The IndexFault of each stream that needed one: page-locked memory, written by the GPU where it
// is.
//
// Threads: any; `mutex_` guards the map and the host's side of the faults. Lives until the process
// ends.
class IndexFaults {
 public:
  static IndexFaults& instance() { return detail::never_destroyed<IndexFaults>(); }

  View<IndexFault> of(const detail::StreamState& stream) {
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

  // Throws the IndexError that a host device would throw, for what kernels of `stream` have met
  // since the last call, or those of any other stream that has ended its work. Called after the
  // host has waited for `stream`: it waits for a replica's loss on another device than the
  // replica's.
  void raise(const detail::StreamState& stream) {
    if (!any_.load(std::memory_order_acquire)) return;
    std::optional<OutsideIndex> met;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [of, place] : faults_) {
        const bool found =
            place &&
            std::atomic_ref(place->written).load(std::memory_order_acquire) != place->taken;
        // That a GPU has failed is no error to who waits for another one.
        const auto idle = [other = of] { return other->idle(); };
        if (!found || (of != &stream && !detail::is_known(idle))) continue;
        met = place->met;
        std::atomic_ref(place->taken).store(place->taken + 1, std::memory_order_release);
        break;
      }
    }
    if (met) (void)detail::checked_row(met->of, met->index, met->position, met->bound);
  }

 private:
  std::mutex mutex_;
  std::map<const detail::StreamState*, IndexFault*> faults_;
  std::atomic<bool> any_{false};
};

}  // namespace lockstep::cuda
