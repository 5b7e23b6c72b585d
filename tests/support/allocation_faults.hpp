// SPDX-License-Identifier: Apache-2.0
#pragma once

// Lets allocations of single threads fail. One file of the program includes count_operator_new.hpp.
//
// ThreadSanitizer does not look: to it the simulated runtime's fibers are threads, which share what
// is local to the one that they run on.

#include <atomic>
#include <cstdint>
#include <limits>

namespace lockstep::testing {

// Ends the faults of all threads when it is counted up.
inline std::atomic<unsigned> allocation_faults_end{0};

#if defined(__clang__)
#define LOCKSTEP_NOT_FOR_TSAN __attribute__((no_sanitize("thread")))
#else
#define LOCKSTEP_NOT_FOR_TSAN
#endif

// While it is above 0 none of the thread's fails, and none is counted: within what stands for a
// library with memory of its own.
inline constinit thread_local int allocations_of_others = 0;
LOCKSTEP_NOT_FOR_TSAN inline void begin_allocations_of_others() { ++allocations_of_others; }
LOCKSTEP_NOT_FOR_TSAN inline void end_allocations_of_others() { --allocations_of_others; }

// What one thread's allocations are to do.
struct AllocationFaults {
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

  std::uint64_t left = kNone;  // so many allocations until the first that fails
  bool lasting = false;        // the later ones fail, too
  bool met = false;
  unsigned until = 0;  // where there are some: as long as that many have been counted

  LOCKSTEP_NOT_FOR_TSAN bool fails() {
    if (left == kNone || until != allocation_faults_end.load()) return false;
    if (allocations_of_others > 0) return false;
    if (left > 0) {
      --left;
      return false;
    }
    met = true;
    if (!lasting) left = kNone;
    return true;
  }
};

inline constinit thread_local AllocationFaults allocation_faults;

// From here on the calling thread's allocation number n, counted from 0, fails.
LOCKSTEP_NOT_FOR_TSAN inline void fail_allocation(std::uint64_t n, bool lasting = false) {
  allocation_faults.left = n;
  allocation_faults.lasting = lasting;
  allocation_faults.met = false;
  allocation_faults.until = allocation_faults_end.load();
}
// None of the calling thread's fails any more. Returns whether one has.
LOCKSTEP_NOT_FOR_TSAN inline bool end_allocation_faults() {
  const bool met = allocation_faults.met;
  allocation_faults.left = AllocationFaults::kNone;
  allocation_faults.met = false;
  return met;
}
// And no thread's does.
inline void end_all_allocation_faults() { ++allocation_faults_end; }

}  // namespace lockstep::testing
