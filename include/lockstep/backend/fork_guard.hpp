// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <atomic>

namespace lockstep::detail {

// Set in a child process by a handler that `forked` registers, while the child has a single thread.
// No other data is published with it, so relaxed order is enough.
inline constinit std::atomic<bool> forked_child{false};

// True in a child that was forked after its parent first called this, which registers a handler for
// later children. If the process has no memory for the handler, it is false in its children, too.
// Any thread; throws nothing.
bool forked() noexcept;

// Throws an Error if `forked` is true. Call it before relying on a thread of the library or on a
// lock that such a thread may hold: a child has no such threads, and the lock may be held for ever.
void check_not_forked();

// True after `main` in a process that has used a GPU. No other data is published with it, so
// relaxed order is enough.
inline constinit std::atomic<bool> gpus_ending{false};

// True if nobody may query streams any more: in a forked child, which has neither its parent's
// threads nor its GPUs, and after `main`, when CUDA may be gone. Memory is then not freed.
inline bool streams_are_gone() noexcept {
  return forked() || gpus_ending.load(std::memory_order_relaxed);
}

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/backend/impl/fork_guard.ipp>
#endif
