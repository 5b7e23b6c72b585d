// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/threads/spin_wait.hpp>
#include <lockstep/device/cores.hpp>

#include <chrono>
#include <thread>
#include <utility>

namespace lockstep::detail {

// How a thread waits that was woken on the core of the thread that woke it: it yields for a while
// before it spins and parks.
//
// Two threads that wake each other on one core never want to run at once, so the scheduler sees no
// reason to move one. In a virtual machine that lasts for seconds, and every hand-over takes
// microseconds. A thread that yields always wants to run, but takes almost nothing from the other,
// so the scheduler soon moves one of them to an idle core.
//
// If another thread computes on that core, a yield lasts as long as that one's time slice. After
// such a yield the thread does not yield for a while.
//
// Threads: belongs to the thread that waits.
class SharedCore {
 public:
  // Notes that the calling thread was parked and has been woken from core `waker`.
  void woken_from(int waker) noexcept {
    core_ = current_core();
    shared_ = core_ >= 0 && core_ == waker;
  }

  // Yields until `ready()` is true (returns true) or it takes too long (returns false); spins once
  // it has moved to another core. Checks `ready` before it yields. Returns false at once if the
  // core is not shared, or is too busy.
  template <class Ready, class Yield = void (*)() noexcept>
  bool yield_until(Ready ready, Yield yield = std::this_thread::yield) {
    if (!shared_) return false;
    Clock::time_point now = Clock::now();
    if (now < again_) return false;
    if (ready()) return true;
    for (const Clock::time_point end = now + kPatience; now < end;) {
      if (!shared_) {
        if (spin_until(ready)) return true;
        now = Clock::now();
        continue;
      }
      yield();
      const Clock::time_point before = std::exchange(now, Clock::now());
      if (now - before > kLongYield) again_ = now + kPause;
      if (ready()) return true;
      if (now < again_) return false;
      shared_ = current_core() == core_;
    }
    return false;
  }

 private:
  using Clock = std::chrono::steady_clock;
  // The limit of one wait. Threads that hand over more slowly gain nothing from yielding.
  static constexpr std::chrono::microseconds kPatience{100};
  // A thread that only hands over keeps its core for less; a time slice is longer.
  static constexpr std::chrono::microseconds kLongYield{500};
  static constexpr std::chrono::milliseconds kPause{300};

  int core_ = -1;
  bool shared_ = false;
  Clock::time_point again_{};  // when it may yield again
};

// The calling thread's, for waiting for threads that it has called.
inline constinit thread_local SharedCore callers_core;

}  // namespace lockstep::detail
