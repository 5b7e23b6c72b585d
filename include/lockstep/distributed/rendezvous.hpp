// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/leave_core.hpp>
#include <lockstep/backend/spin_wait.hpp>
#include <lockstep/device/cores.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep::distributed::detail {

// Where the ranks of a world of threads wait for one another, again and again: what each did before
// it came is visible to all when they go on. Once it is broken, nobody gets through any more.
//
// Everything is one word, so that it is decided at one point whether a round took place or was
// broken, and all ranks see the same: bit 0 says that it is broken, bit 1 that somebody may be
// parked, the next 11 how many have come, the rest counts the rounds. A rank is at most one round
// behind, so the count may wrap around.
//
// Ranks that meet every few microseconds need a core each: one that parked, and was woken on the
// core of the rank that it waited for, leaves it if another core is idle.
class Rendezvous {
 public:
  static constexpr int kMaxSize = 1024;

  explicit Rendezvous(int size) : size_(static_cast<std::uint32_t>(size)) {}

  // Returns true when all have come, false if it was broken before that.
  bool meet() noexcept {
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    while (true) {
      if (word & kBroken) return false;
      const bool last = arrived(word) + 1 == size_;
      // Published by the exchange below; another round's at worst, and then a rank moves in vain.
      if (last && (word & kParked)) {
        core_of_last_.store(lockstep::detail::current_core(), std::memory_order_relaxed);
      }
      const std::uint32_t next = last ? (round(word) + 1) << kRoundShift : word + kOneArrived;
      // Release: what this rank did; acquire: the last one goes on at once, and so carries the
      // others' writes to those that it wakes.
      if (word_.compare_exchange_weak(word, next, std::memory_order_acq_rel,
                                      std::memory_order_relaxed)) {
        if (!last) return await_end_of(round(word));
        if (moving_.load(std::memory_order_relaxed)) {
          moving_.store(false, std::memory_order_relaxed);
        }
        if (word & kParked) word_.notify_all();
        return true;
      }
    }
  }

  void break_off() noexcept {
    word_.fetch_or(kBroken, std::memory_order_acq_rel);
    word_.notify_all();
  }

 private:
  using Clock = std::chrono::steady_clock;

  static constexpr std::uint32_t kBroken = 1;
  static constexpr std::uint32_t kParked = 2;
  static constexpr std::uint32_t kOneArrived = 4;
  static constexpr unsigned kRoundShift = 13;
  static constexpr int kSpinsForAMove = 100;
  static constexpr Clock::duration kBetweenTries = std::chrono::milliseconds(1);

  static std::uint32_t arrived(std::uint32_t word) {
    return (word & ((1U << kRoundShift) - 1)) / kOneArrived;
  }
  static std::uint32_t round(std::uint32_t word) { return word >> kRoundShift; }

  bool await_end_of(std::uint32_t mine) noexcept {
    const auto over = [mine](std::uint32_t word) {
      return round(word) != mine || (word & kBroken);
    };
    std::uint32_t word = 0;
    const auto spin = [&] {
      return lockstep::detail::spin_until([&] {
        word = word_.load(std::memory_order_acquire);
        return over(word);
      });
    };
    bool spun = spin();
    for (int i = 0; !spun && i < kSpinsForAMove && moving_.load(std::memory_order_relaxed); ++i) {
      spun = spin();
    }
    if (!spun) {
      // If the round ends before that, the end of the next one notifies in vain.
      word = word_.fetch_or(kParked, std::memory_order_acquire) | kParked;
      for (; !over(word); word = word_.load(std::memory_order_acquire)) {
        word_.wait(word, std::memory_order_acquire);
      }
      leave_core_of_last();
    }
    return round(word) != mine;
  }

  void leave_core_of_last() noexcept {
    const int core = core_of_last_.load(std::memory_order_relaxed);
    if (core != lockstep::detail::current_core()) return;
    const Clock::duration now = Clock::now().time_since_epoch();
    if (now < next_try_.load(std::memory_order_relaxed)) return;
    if (size_ <= lockstep::detail::usable_cores()) {
      moving_.store(true, std::memory_order_relaxed);
      if (lockstep::detail::leave_core(core)) return;
      moving_.store(false, std::memory_order_relaxed);
    }
    next_try_.store(now + kBetweenTries, std::memory_order_relaxed);
  }

  const std::uint32_t size_;
  alignas(64) std::atomic<std::uint32_t> word_{0};
  // A rank leaves a core: it comes some microseconds late to the next round, and who parked
  // meanwhile would be woken on its new core. Written by that rank, and by the last one of a round.
  std::atomic<bool> moving_{false};
  // Written by the last rank of a round in which others parked, read by those.
  std::atomic<int> core_of_last_{-1};
  // No rank looks for an idle core before: written by one that has found none.
  std::atomic<Clock::duration> next_try_{Clock::duration::zero()};
};

}  // namespace lockstep::distributed::detail
