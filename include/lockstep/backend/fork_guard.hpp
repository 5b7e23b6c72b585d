// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>

#include <atomic>

#include <pthread.h>

namespace lockstep::detail {

// Set in a child process by the handler that `forked` registers, while the child has only one
// thread; read by any thread of that process later. It is alone: no other data is published with
// it, so relaxed order is enough.
inline constinit std::atomic<bool> forked_child{false};

// True in a child that was forked after its parent first called this function, which also makes
// sure that later children will know.
//
// **Threads and exceptions.** Any thread; throws nothing. Only where the process has no memory left
// for the handler are its children not told apart.
inline bool forked() noexcept {
  [[maybe_unused]] static const int registered = ::pthread_atfork(
      nullptr, nullptr, [] { forked_child.store(true, std::memory_order_relaxed); });
  return forked_child.load(std::memory_order_relaxed);
}

// Throws an Error where `forked` is true. Whoever is about to rely on a thread of the library, or
// on a lock that such a thread may hold, calls this first: in the child the thread is gone and the
// lock may be held for ever.
inline void check_not_forked() {
  check<Error>(!forked(),
               "lockstep cannot be used in this process: it was forked from one that used lockstep "
               "before, and the threads that do its work exist only in the parent. Fork before "
               "lockstep's first use, or call exec in the child");
}

}  // namespace lockstep::detail
