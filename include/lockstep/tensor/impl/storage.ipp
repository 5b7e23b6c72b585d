// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/tensor/storage.hpp>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

namespace lockstep::detail {

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
  StreamState* const first = first_.load(std::memory_order_relaxed);
  for (const Use& use : kept_) {
    if (streams_are_gone()) return;
    bool ordered = use.end.has_value();
    try {
      if (ordered) owner_.wait_event(*use.end);
    } catch (...) {
      ordered = false;  // a call or an allocation has failed
    }
    if (ordered) continue;
    if (first && further_.empty()) further_.push_back(first);
    further_.push_back(&use.stream.state());
  }
  memory_.deallocate(data_, bytes_, owner_.state(), {first, std::move(further_)});
}

LOCKSTEP_INLINE void Storage::record_stream(const Stream& stream) {
  StreamState* const state = &stream.state();
  StreamState* first = first_.load(std::memory_order_acquire);
  if (first == state) return;
  if (!first && first_.compare_exchange_strong(first, state, std::memory_order_acq_rel)) return;
  if (first == state) return;
  const std::lock_guard lock(mutex_);
  if (find(further_, state) != further_.end()) return;
  make_room();
  if (further_.empty()) further_.push_back(first);
  further_.push_back(state);
  has_further_.store(true, std::memory_order_release);
}

LOCKSTEP_INLINE void Storage::keep_until(const Stream& stream, const std::optional<Event>& end) {
  if (stream == owner_) return;
  const std::lock_guard lock(mutex_);
  use_of(stream).end = end;
}

LOCKSTEP_INLINE void Storage::expect_use(const Stream& stream) {
  if (stream == owner_) return;
  const std::lock_guard lock(mutex_);
  (void)use_of(stream);
}

LOCKSTEP_INLINE Storage::Use& Storage::use_of(const Stream& stream) {
  const auto found = find_if(kept_, [&](const Use& use) { return use.stream == stream; });
  if (found != kept_.end()) return *found;
  make_room();
  return kept_.emplace_back(Use{stream, Event()});
}

LOCKSTEP_INLINE void Storage::order_write(const Stream& writer) {
  StreamState* const first = first_.load(std::memory_order_acquire);
  if (!first) return;
  if (!has_further_.load(std::memory_order_acquire)) return writer.wait_stream(Stream(*first));
  const std::lock_guard lock(mutex_);
  for (StreamState* reader : further_) writer.wait_stream(Stream(*reader));
}

}  // namespace lockstep::detail
