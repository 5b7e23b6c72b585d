// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <atomic>

namespace lockstep::detail {

// Set in a child process by the handler that `forked` registers, while the child has only one
// thread; read by any thread of that process later. No other data is published with it, so relaxed
// order is enough.
inline constinit std::atomic<bool> forked_child{false};

// True in a child that was forked after its parent first called this function. The first call
// registers a handler that runs in each later child.
//
// **Threads and exceptions.** Any thread; throws nothing. If the process has no memory for the
// handler, this is false in its children, too.
bool forked() noexcept;

// Throws an Error if `forked` is true. Code that is about to rely on a thread of the library, or on
// a lock that such a thread may hold, calls this first: in the child the thread is gone, and the
// lock may be held for ever.
void check_not_forked();

// True from the end of `main` on in a process that has used a GPU. No other data is published with
// it, so relaxed order is enough.
inline constinit std::atomic<bool> gpus_ending{false};

// True if nobody may ask any more what streams have done: in a forked child, which has neither the
// threads nor the GPUs of its parent, and after `main`, when CUDA may be gone. Memory is not freed
// then.
inline bool streams_are_gone() noexcept {
  return forked() || gpus_ending.load(std::memory_order_relaxed);
}

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/backend/impl/fork_guard.ipp>
#endif
