// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <atomic>

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
bool forked() noexcept;

// Throws an Error where `forked` is true. Whoever is about to rely on a thread of the library, or
// on a lock that such a thread may hold, calls this first: in the child the thread is gone and the
// lock may be held for ever.
void check_not_forked();

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/backend/fork_guard.ipp>
#endif
