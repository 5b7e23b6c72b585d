// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/tensor/storage.hpp>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

namespace lockstep::detail {

LOCKSTEP_INLINE bool& pin_memory_wanted() {
  static constinit thread_local bool wanted = false;
  return wanted;
}

LOCKSTEP_INLINE MemoryResource* usable_pinned_memory() {
  MemoryResource* const pinned = pinned_memory.load(std::memory_order_acquire);
  return pinned && device_count(DeviceType::cuda) > 0 ? pinned : nullptr;
}

LOCKSTEP_INLINE MemoryResource& memory_of(Device device) {
  if (pin_memory_wanted() && device.is_host_memory()) [[unlikely]] {
    if (MemoryResource* const pinned = usable_pinned_memory()) return *pinned;
  }
  return backend_of(device);
}

LOCKSTEP_INLINE Storage::~Storage() {
  try {
    for (const Use& use : kept_) {
      if (streams_are_gone()) return;
      owner_.wait_event(use.end);
    }
  } catch (const std::exception&) {
    // The device is broken, or the process is ending: the block is not freed.
    return;
  }
  StreamState* const first = first_.load(std::memory_order_relaxed);
  if (further_.empty()) {
    memory_.deallocate(data_, bytes_, owner_.state(), {&first, first ? 1U : 0U});
  } else {
    memory_.deallocate(data_, bytes_, owner_.state(), further_);
  }
}

LOCKSTEP_INLINE void Storage::record_stream(const Stream& stream) {
  StreamState* const state = &stream.state();
  StreamState* first = first_.load(std::memory_order_acquire);
  if (first == state) return;
  if (!first && first_.compare_exchange_strong(first, state, std::memory_order_acq_rel)) return;
  if (first == state) return;
  const std::lock_guard lock(mutex_);
  if (further_.empty()) further_.push_back(first);
  if (std::find(further_.begin(), further_.end(), state) != further_.end()) return;
  further_.push_back(state);
  has_further_.store(true, std::memory_order_release);
}

LOCKSTEP_INLINE void Storage::keep_until(const Stream& stream, const Event& end) {
  if (stream == owner_) return;
  const std::lock_guard lock(mutex_);
  const auto same = [&](const Use& use) { return use.stream == stream; };
  const auto found = std::find_if(kept_.begin(), kept_.end(), same);
  if (found != kept_.end()) {
    found->end = end;
  } else {
    kept_.push_back({stream, end});
  }
}

LOCKSTEP_INLINE void Storage::order_write(const Stream& writer) {
  StreamState* const first = first_.load(std::memory_order_acquire);
  if (!first) return;
  if (has_further_.load(std::memory_order_acquire)) return order_after_readers(writer);
  writer.wait_stream(Stream(*first));
}

LOCKSTEP_INLINE void Storage::order_after_readers(const Stream& writer) {
  const std::lock_guard lock(mutex_);
  for (StreamState* reader : further_) writer.wait_stream(Stream(*reader));
}

}  // namespace lockstep::detail
