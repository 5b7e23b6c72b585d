// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace lockstep::testing {

// How often any thread of this program has called operator new so far. One file of the program
// includes count_operator_new.hpp.
std::uint64_t operator_new_calls();

// While it lives, memory is short: of all threads' allocations from now on, by operator new or for
// host tensors, the `nth` fails (1 is the next one), and with `lasting` every later one.
//
// One at a time. googletest allocates, too: whatever a test expects comes after its end.
class OutOfMemory {
 public:
  OutOfMemory(std::uint64_t nth, bool lasting);
  OutOfMemory(const OutOfMemory&) = delete;
  OutOfMemory& operator=(const OutOfMemory&) = delete;
  ~OutOfMemory();

  // Whether an allocation has failed.
  static bool has_struck();
};

}  // namespace lockstep::testing
