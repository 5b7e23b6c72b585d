// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host/shared_work.hpp>
#include <lockstep/backend/threads/park.hpp>
#include <lockstep/backend/threads/shared_core.hpp>
#include <lockstep/backend/threads/spin_wait.hpp>

#include <atomic>
#include <cstdint>

namespace lockstep::detail {

LOCKSTEP_INLINE void SharedWork::open(const Pieces& pieces) {
  pieces_ = pieces;
  const std::uint32_t middle = pieces.count - pieces.count / 2;
  front_.store(range(0, middle), std::memory_order_relaxed);
  back_.store(range(middle, pieces.count), std::memory_order_relaxed);
  helpers_.store(kOpen, std::memory_order_release);
}

LOCKSTEP_INLINE void SharedWork::close() {
  if (helpers_.fetch_and(~kOpen, std::memory_order_acquire) == kOpen) return;
  const auto ended = [this] { return helpers_.load(std::memory_order_acquire) == 0; };
  if (callers_core.yield_until(ended) || spin_until(ended)) return;
  core_of_waker_.store(-1, std::memory_order_relaxed);  // before a helper can see a parked owner
  while (const std::uint32_t helpers = helpers_.load(std::memory_order_acquire)) {
    park_counted(helpers_, helpers);
  }
  callers_core.woken_from(core_of_waker_.load(std::memory_order_relaxed));
}

LOCKSTEP_INLINE void SharedWork::run_from(End end) {
  run_while(end, [] { return true; });
}

LOCKSTEP_INLINE bool SharedWork::join(std::uint32_t most) {
  std::uint32_t value = helpers_.load(std::memory_order_relaxed);
  while ((value & kOpen) != 0 && value / kHelper < most) {
    if (helpers_.compare_exchange_weak(value, value + kHelper, std::memory_order_acquire,
                                       std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

LOCKSTEP_INLINE std::uint32_t SharedWork::back_of(std::uint64_t range) {
  return static_cast<std::uint32_t>(range >> 32);
}

LOCKSTEP_INLINE bool SharedWork::has_untaken(const Half& half) {
  const std::uint64_t untaken = half.load(std::memory_order_relaxed);
  return front_of(untaken) < back_of(untaken);
}

}  // namespace lockstep::detail
