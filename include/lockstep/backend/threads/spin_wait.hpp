// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/threads/park.hpp>
#include <lockstep/device/cores.hpp>

#include <atomic>
#include <chrono>

namespace lockstep::detail {

// Tells the core that this thread spins.
inline void cpu_relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  asm volatile("pause");
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

// How long a thread spins before it parks. Waking a parked thread costs 2 to 20 µs, so spinning
// longer gains little, and may take the very core that the awaited thread needs.
inline constexpr std::chrono::nanoseconds kSpinTime{2500};

// Calls `ready` until it is true (returns true) or `limit` is over (returns false). The limit is a
// time, not a count, since one pause takes from 2 to over 50 ns, depending on the machine.
template <class Ready>
bool spin_until(Ready ready, std::chrono::nanoseconds limit = kSpinTime) {
  using Clock = std::chrono::steady_clock;
  constexpr int kPausesPerLook = 8;  // a look at the clock costs about as much as one pause
  if (ready()) return true;
  const Clock::time_point end = Clock::now() + limit;
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      cpu_relax();
      if (ready()) return true;
    }
  } while (Clock::now() < end);
  return false;
}

// Returns once `ready(value)` is true for the value of `word`, read with acquire order. Spins for
// `kSpinTime`, then parks. A thread that changes the value must call `unpark_counted` afterwards.
template <class Ready>
void spin_then_park(const std::atomic<std::uint32_t>& word, Ready ready) {
  if (spin_until([&] { return ready(word.load(std::memory_order_acquire)); })) return;
  for (std::uint32_t value = word.load(std::memory_order_acquire); !ready(value);
       value = word.load(std::memory_order_acquire)) {
    park_counted(word, value);
  }
}

}  // namespace lockstep::detail
