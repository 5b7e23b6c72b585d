// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace lockstep::detail {

// Asks the scheduler for short time slices for the calling thread, but not for threads that it
// starts: for a thread that often sleeps, never runs long, and that others wait for. It then runs
// as soon as it wakes, not after the slice of a thread that computes on its core (4 ms at 250 ticks
// a second). Its share of the core, policy and niceness stay the same.
//
// Linux 6.12 and later grant this. Does nothing for a policy other than SCHED_OTHER, a negative
// niceness, or a slice that is short already.
inline void ask_for_short_slice() noexcept {
  // The first version of the kernel's sched_attr, which not every C library has.
  struct Attributes {
    std::uint32_t size;
    std::uint32_t policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t runtime;  // nanoseconds; for most policies the slice, 0 if it cannot be chosen
    std::uint64_t deadline;
    std::uint64_t period;
  };
  static_assert(sizeof(Attributes) == 48);
  constexpr std::uint32_t kOther = 0;        // SCHED_OTHER
  constexpr std::uint64_t kResetOnFork = 1;  // SCHED_FLAG_RESET_ON_FORK
  constexpr std::uint64_t kShort = 100'000;  // the least that the kernel takes
  Attributes mine{};
  if (::syscall(SYS_sched_getattr, 0, &mine, sizeof mine, 0) != 0) return;
  if (mine.policy != kOther || mine.nice < 0 || mine.runtime <= kShort) return;
  mine.flags |= kResetOnFork;
  mine.runtime = kShort;
  (void)::syscall(SYS_sched_setattr, 0, &mine, 0);
}

}  // namespace lockstep::detail
