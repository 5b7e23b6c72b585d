// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/threads/park.hpp>
#include <lockstep/backend/threads/shared_core.hpp>
#include <lockstep/backend/threads/spin_wait.hpp>
#include <lockstep/device/cores.hpp>
#include <lockstep/distributed/store/rendezvous.hpp>

#include <atomic>
#include <cstdint>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE bool Rendezvous::meet() noexcept {
  std::uint32_t word = word_.load(std::memory_order_relaxed);
  while (true) {
    if (word & kBroken) return false;
    const bool last = arrived(word) + 1 == size_;
    if (last) core_of_last_.store(lockstep::detail::current_core(), std::memory_order_relaxed);
    const std::uint32_t next = last ? (round(word) + 1) << kRoundShift : word + kOneArrived;
    // Release publishes what this rank did. Acquire: the last rank goes on at once, and its release
    // passes the others' writes on to those that it wakes.
    if (word_.compare_exchange_weak(word, next, std::memory_order_acq_rel,
                                    std::memory_order_relaxed)) {
      if (last) {
        lockstep::detail::unpark_counted(word_);
        return true;
      }
      return await_end_of(round(word));
    }
  }
}

LOCKSTEP_INLINE void Rendezvous::break_off() noexcept {
  word_.fetch_or(kBroken, std::memory_order_acq_rel);
  lockstep::detail::unpark_counted(word_);
}

LOCKSTEP_INLINE std::uint32_t Rendezvous::arrived(std::uint32_t word) {
  return (word >> 1) & ((1U << (kRoundShift - 1)) - 1);
}

LOCKSTEP_INLINE bool Rendezvous::await_end_of(std::uint32_t mine) const noexcept {
  thread_local lockstep::detail::SharedCore shared_core;
  std::uint32_t word = 0;
  const auto over = [&] {
    word = word_.load(std::memory_order_acquire);
    return round(word) != mine || (word & kBroken);
  };
  const bool found = (fits_ && shared_core.yield_until(over)) || lockstep::detail::spin_until(over);
  if (!found) {
    while (!over()) lockstep::detail::park_counted(word_, word);
    shared_core.woken_from(core_of_last_.load(std::memory_order_relaxed));
  }
  return round(word) != mine;
}

}  // namespace lockstep::distributed::detail
