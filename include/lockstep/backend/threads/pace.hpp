// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <chrono>

namespace lockstep::detail {

// How long a piece of work took the last time: a guess of how long it will take, and so of whether
// calling a second thread for a part of it pays.
//
// A wrong guess costs little. Work that is longer than thought has its helpers after two naps of
// theirs (kNap) at the latest, and usually much earlier; work that is shorter than thought has
// woken threads for nothing.
//
// Threads: belongs to one thread.
class Pace {
 public:
  using Clock = std::chrono::steady_clock;

  // Waking a parked thread takes its waker 2 to 7 µs and the thread 5 to 50 µs until it runs.
  static constexpr std::chrono::microseconds kShort{30};

  static bool is_short(Clock::duration work) { return work <= kShort; }

  // Before anything was measured nothing is short.
  bool is_short() const { return is_short(work_); }
  // The time that one thread alone needs for the work.
  void measured(Clock::duration work) { work_ = work; }

 private:
  Clock::duration work_ = Clock::duration::max();
};

}  // namespace lockstep::detail
