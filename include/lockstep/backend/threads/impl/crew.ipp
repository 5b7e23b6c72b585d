// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/threads/crew.hpp>
#include <lockstep/backend/threads/worker_mailbox.hpp>
#include <lockstep/backend/threads/worker_pool.hpp>

#include <atomic>
#include <cstddef>
#include <utility>

namespace lockstep::detail {

LOCKSTEP_INLINE Crew::Crew(std::size_t helpers, FunctionRef<void(std::size_t helper)> help)
    : pool_((check_not_forked(), WorkerPool::instance())),
      share_(pool_.lease(helpers + 1)),
      was_inside_(std::exchange(inside_team, true)) {
  share_.body = help;
  share_.kind = Share::Kind::helpers;
  share_.settled = share_.team->settled;
}

LOCKSTEP_INLINE Crew::~Crew() {
  inside_team = was_inside_;
  // A forked child has no helpers to wait for, and must not lease them again.
  if (forked()) return;
  withdraw_and_join();
  pool_.give_back(*share_.team);
}

LOCKSTEP_INLINE void Crew::call(std::size_t helper, Call how) noexcept {
  share_.team->pending.fetch_add(Team::kShare, std::memory_order_relaxed);
  pool_.post(share_, helper, how == Call::urgent ? Post::offer : Post::low_priority_offer);
}

LOCKSTEP_INLINE void Crew::dismiss() {
  check_not_forked();
  withdraw_and_join();
}

LOCKSTEP_INLINE void Crew::withdraw_and_join() noexcept {
  std::atomic<std::uint32_t>& pending = share_.team->pending;
  if (pending.load(std::memory_order_acquire) == share_.settled) return;
  for (Worker* worker : share_.team->workers) {
    if (worker->mailbox.withdraw()) pending.fetch_sub(Team::kShare, std::memory_order_relaxed);
  }
  WorkerPool::join(share_);
}

}  // namespace lockstep::detail
