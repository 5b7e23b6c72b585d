// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/error.hpp>

#include <pthread.h>

#include <atomic>

namespace lockstep::detail {

LOCKSTEP_INLINE bool forked() noexcept {
  [[maybe_unused]] static const int registered = ::pthread_atfork(
      nullptr, nullptr, [] { forked_child.store(true, std::memory_order_relaxed); });
  return forked_child.load(std::memory_order_relaxed);
}

LOCKSTEP_INLINE void check_not_forked() {
  check<Error>(!forked(),
               "lockstep cannot be used in this process: it was forked from one that used lockstep "
               "before, and the threads that do its work exist only in the parent. Fork before "
               "lockstep's first use, or call exec in the child");
}

}  // namespace lockstep::detail
