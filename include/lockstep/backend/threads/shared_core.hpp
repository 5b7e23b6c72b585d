// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/threads/spin_wait.hpp>
#include <lockstep/device/cores.hpp>

#include <chrono>
#include <thread>
#include <utility>

namespace lockstep::detail {

// How a thread waits that was woken on the core of the thread that woke it: by yielding, for a
// while, before it spins and parks.
//
// Two threads that wake each other on one core never want to run at the same time, so a scheduler
// that wakes each where the other is sees no reason to move one; in a virtual machine, whose idle
// cores often count as not available, that goes on for seconds, and every hand-over takes
// microseconds. A thread that yields wants to run all the time, and takes next to nothing from the
// other, whose core it would only keep busy by spinning: the scheduler puts one of them on an idle
// core within some ticks.
//
// If another thread computes on that core, a yield lasts as long as that thread's time slice. After
// such a yield the thread does not yield again for a while.
//
// Threads: belongs to the thread that waits.
class SharedCore {
 public:
  // The calling thread was parked and has been woken from core `waker`.
  void woken_from(int waker) noexcept {
    core_ = current_core();
    shared_ = core_ >= 0 && core_ == waker;
  }

  // Yields until `ready()` is true (then returns true) or it has taken too long (false); once moved
  // to another core it spins. Looks before it yields: what is there already costs no time slice.
  // Returns false at once where the core is not shared, or too busy.
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
  // The limit of one wait: threads that hand over to each other more slowly gain nothing from
  // yielding.
  static constexpr std::chrono::microseconds kPatience{100};
  // No thread that only hands over keeps its core for so long; time slices are longer.
  static constexpr std::chrono::microseconds kLongYield{500};
  static constexpr std::chrono::milliseconds kPause{300};

  int core_ = -1;
  bool shared_ = false;
  Clock::time_point again_{};  // when it may yield again
};

// The calling thread's, for its waits for threads that it has called.
inline constinit thread_local SharedCore callers_core;

}  // namespace lockstep::detail
