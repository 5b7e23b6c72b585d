// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/spin_wait.hpp>
#include <lockstep/device/cores.hpp>

#include <chrono>
#include <thread>

namespace lockstep::detail {

// How a thread waits that was woken on the core of the thread that woke it: by yielding, for a
// while, before it parks again.
//
// Two threads that wake each other on one core never want to run at the same time, so a scheduler
// that wakes each where the other is sees no reason to move one; in a virtual machine, whose idle
// cores often count as not available, that goes on for seconds, and every hand-over takes
// microseconds. A thread that yields wants to run all the time, and takes next to nothing from the
// other: the scheduler puts one of them on an idle core within some ticks. Where none is idle the
// attempt ends. The next one waits for three times as long as this one took, so that all of them
// together do not matter where they are of no use.
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
  // to another core it spins. Returns false at once where the core is not shared, or where it is
  // too early for another attempt.
  template <class Ready>
  bool yield_until(Ready ready) {
    if (!shared_) return false;
    const Clock::time_point begin = Clock::now();
    if (begin >= next_) {
      end_ = begin + kAttempt;
      next_ = end_ + kPauses * kAttempt;
    }
    for (Clock::time_point now = begin; now < end_ && now < begin + kPatience; now = Clock::now()) {
      if (shared_) {
        std::this_thread::yield();
        if (ready()) return true;
        shared_ = current_core() == core_;
        if (!shared_) next_ = now + kPauses * (now - (end_ - kAttempt));
      } else if (spin_until(ready)) {
        return true;
      }
    }
    return false;
  }

 private:
  using Clock = std::chrono::steady_clock;
  // Of one wait: those who hand over to each other that slowly gain nothing.
  static constexpr std::chrono::milliseconds kPatience{1};
  // Of many: several ticks of a scheduler, which looks for idle cores at some of them only.
  static constexpr std::chrono::milliseconds kAttempt{100};
  static constexpr int kPauses = 3;

  int core_ = -1;
  bool shared_ = false;
  Clock::time_point end_{};   // of the attempt that was begun last
  Clock::time_point next_{};  // when there may be another one
};

}  // namespace lockstep::detail
