// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <chrono>

namespace lockstep::detail {

// How long a piece of work took last time: a guess of how long it will take, and so of whether
// calling a second thread pays.
//
// A wrong guess costs little. Work longer than expected gets its helpers after two of their naps
// (kNap) at most, usually much earlier; work shorter than expected has woken threads for nothing.
//
// Threads: belongs to one thread.
class Pace {
 public:
  using Clock = std::chrono::steady_clock;

  // Waking a parked thread takes its waker 2 to 7 µs and the thread 5 to 50 µs until it runs.
  static constexpr std::chrono::microseconds kShort{30};

  static bool is_short(Clock::duration work) { return work <= kShort; }

  // False before anything was measured.
  bool is_short() const { return is_short(work_); }
  // Sets the time that one thread alone needs for the work.
  void measured(Clock::duration work) { work_ = work; }

 private:
  Clock::duration work_ = Clock::duration::max();
};

}  // namespace lockstep::detail
