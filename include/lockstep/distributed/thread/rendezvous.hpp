// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/threads/park.hpp>
#include <lockstep/backend/threads/shared_core.hpp>
#include <lockstep/backend/threads/spin_wait.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/cores.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep::distributed::detail {

// How a rank that has a core to itself waits for the others: it spins for about as long as waking
// it would take. A rank that parks is late for the next meeting, where the others then park too, so
// each small step costs two wake-ups.
//
// After a spin without success the next ones are short: if the others take longer, or something
// else runs on their cores, spinning gains nothing.
//
// Threads: belongs to the thread that waits.
class LongSpin {
 public:
  template <class Ready>
  bool until(Ready ready) {
    if (short_waits_ > 0) {
      --short_waits_;
      return lockstep::detail::spin_until(ready);
    }
    if (lockstep::detail::spin_until(ready, kLimit)) return true;
    short_waits_ = kShortWaits;
    return false;
  }

 private:
  static constexpr std::chrono::microseconds kLimit{20};
  static constexpr int kShortWaits = 100;

  int short_waits_ = 0;
};

// A reusable barrier for the ranks of a world of threads: when `meet` returns, what each rank did
// before it is visible to all. Once broken, it has no further round.
//
// The state is one word, so that all ranks agree on whether a round took place or was broken: bit 0
// says that it is broken, the next 11 bits how many ranks have arrived, and the rest counts rounds.
// The count may wrap around, since a rank is at most one round behind.
class Rendezvous {
 public:
  static constexpr int kMaxSize = 1024;

  explicit Rendezvous(int size)
      : size_(static_cast<std::uint32_t>(size)), fits_(size_ <= lockstep::detail::usable_cores()) {}

  // Returns true when all have arrived, false if it was broken before.
  bool meet() noexcept {
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    while (true) {
      if (word & kBroken) return false;
      const bool last = arrived(word) + 1 == size_;
      if (last) core_of_last_.store(lockstep::detail::current_core(), std::memory_order_relaxed);
      const std::uint32_t next = last ? (round(word) + 1) << kRoundShift : word + kOneArrived;
      // Release publishes what this rank did. Acquire lets the last rank, which goes on at once,
      // read the others' writes, and its release passes them on to those that it wakes.
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

  void break_off() noexcept {
    word_.fetch_or(kBroken, std::memory_order_acq_rel);
    lockstep::detail::unpark_counted(word_);
  }

 private:
  static constexpr std::uint32_t kBroken = 1;
  static constexpr std::uint32_t kOneArrived = 2;
  static constexpr unsigned kRoundShift = 12;

  static std::uint32_t arrived(std::uint32_t word) {
    return (word >> 1) & ((1U << (kRoundShift - 1)) - 1);
  }
  static std::uint32_t round(std::uint32_t word) { return word >> kRoundShift; }

  bool await_end_of(std::uint32_t mine) const noexcept {
    thread_local lockstep::detail::SharedCore shared_core;
    thread_local LongSpin long_spin;
    std::uint32_t word = 0;
    const auto over = [&] {
      word = word_.load(std::memory_order_acquire);
      return round(word) != mine || (word & kBroken);
    };
    const bool found = fits_ ? shared_core.yield_until(over) || long_spin.until(over)
                             : lockstep::detail::spin_until(over);
    if (!found) {
      while (!over()) lockstep::detail::park_counted(word_, word);
      shared_core.woken_from(core_of_last_.load(std::memory_order_relaxed));
    }
    return round(word) != mine;
  }

  const std::uint32_t size_;
  const bool fits_;  // each rank can have a core
  alignas(64) std::atomic<std::uint32_t> word_{0};
  // The core on which the last rank to arrive ran, in this round or the next: a hint for those it
  // wakes.
  std::atomic<int> core_of_last_{-1};
};

}  // namespace lockstep::distributed::detail
