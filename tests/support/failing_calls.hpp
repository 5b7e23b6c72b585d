// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/sanitizers.hpp"

#include <cstddef>
#include <cstdint>

namespace lockstep::testing {

// What the system is asked for.
enum class CallKind { thread, file, socket };

// The sanitizers replace the same functions.
inline constexpr bool kCallsCanFail = !kSanitizer;

// While it lives, of all threads' calls of one kind from now on the `nth` fails (1 is the next
// one), and with `lasting` every later one: starting a thread; opening, reading, writing, syncing
// or renaming a file; making, connecting, reading or writing a socket. It fails with `error`, in
// errno's terms, or for 0 with what is usual there. One at a time. One file of the program includes
// define_failing_calls.hpp.
class FailingCalls {
 public:
  FailingCalls(CallKind kind, std::uint64_t nth, bool lasting, int error = 0);
  FailingCalls(const FailingCalls&) = delete;
  FailingCalls& operator=(const FailingCalls&) = delete;
  ~FailingCalls();

  // Whether a call has failed.
  static bool has_struck();
};

// While it lives, no call of pread or pwrite moves more than `most` bytes.
class ShortCalls {
 public:
  explicit ShortCalls(std::size_t most);
  ShortCalls(const ShortCalls&) = delete;
  ShortCalls& operator=(const ShortCalls&) = delete;
  ~ShortCalls();
};

}  // namespace lockstep::testing
