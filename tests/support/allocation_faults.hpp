// SPDX-License-Identifier: Apache-2.0
#pragma once

// Lets allocations of single threads fail. One file of the program includes count_operator_new.hpp.

#include <atomic>
#include <cstdint>
#include <limits>

namespace lockstep::testing {

// Ends the faults of all threads when it is counted up.
inline std::atomic<unsigned> allocation_faults_end{0};

// While it is above 0 none of the thread's fails, and none is counted: within what stands for a
// library with memory of its own.
inline thread_local int allocations_of_others = 0;

// What one thread's allocations are to do.
struct AllocationFaults {
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

  std::uint64_t left = kNone;  // so many allocations until the first that fails
  bool lasting = false;        // the later ones fail, too
  bool met = false;
  unsigned until = allocation_faults_end.load();

  bool fails() {
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

inline thread_local AllocationFaults allocation_faults;

// From here on the calling thread's allocation number n, counted from 0, fails.
inline void fail_allocation(std::uint64_t n, bool lasting = false) {
  allocation_faults = {.left = n, .lasting = lasting};
}
// None of the calling thread's fails any more. Returns whether one has.
inline bool end_allocation_faults() {
  const bool met = allocation_faults.met;
  allocation_faults = {};
  return met;
}
// And no thread's does.
inline void end_all_allocation_faults() { ++allocation_faults_end; }

}  // namespace lockstep::testing
