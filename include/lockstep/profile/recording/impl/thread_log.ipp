// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/profile/device_timer.hpp>
#include <lockstep/profile/recording/thread_log.hpp>

#include <atomic>
#include <cstddef>
#include <new>
#include <string_view>
#include <utility>

namespace lockstep::profile::detail {

LOCKSTEP_INLINE void discard(const RecordedEvent& event) noexcept {
  for (void* const mark : {event.begin_mark, event.end_mark}) {
    if (mark != nullptr) device_timer.load(std::memory_order_acquire)->discard(mark);
  }
}

LOCKSTEP_INLINE ThreadLog::~ThreadLog() {
  drain([](const RecordedEvent& event) { discard(event); });  // what came too late for the reader
  drop_first();
}

LOCKSTEP_INLINE bool ThreadLog::append(const RecordedEvent& event) noexcept {
  if (room_ == 0) return drop();
  std::size_t count = last_->count.load(std::memory_order_relaxed);
  if (count == last_->events.size()) {
    Chunk* const next = new (std::nothrow) Chunk;
    if (next == nullptr) return drop();
    Chunk* const full = std::exchange(last_, next);
    full->next.store(next, std::memory_order_release);
    count = 0;
  }
  last_->events[count] = event;
  last_->count.store(count + 1, std::memory_order_release);
  --room_;
  return true;
}

LOCKSTEP_INLINE const char* ThreadLog::keep(std::string_view name) noexcept {
  const auto known = names_.find(name);
  if (known != names_.end()) return known->c_str();
  if (room_ == 0) return nullptr;
  try {
    return names_.emplace(name).first->c_str();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

LOCKSTEP_INLINE bool ThreadLog::drop() noexcept {
  dropped_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

}  // namespace lockstep::profile::detail
