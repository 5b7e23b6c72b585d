// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/letter_box.hpp>
#include <lockstep/backend/worker_pool.hpp>

#include <atomic>
#include <cstddef>
#include <utility>

namespace lockstep::detail {

// Worker threads that stand ready to help the thread that made the crew, and cost it next to
// nothing as long as none is called.
//
// Helper i, from 1 to `helpers`, runs `invoke(context, i)` once if it is called and comes before
// `dismiss`. `invoke` must not throw.
//
// **Threads and exceptions.** Made, dismissed and destroyed by one thread. That thread and helpers
// that have come may `call` and `hurry` others, but nobody calls a helper a second time.
// The constructor throws as run_team does; in a child forked meanwhile `dismiss` throws an Error.
class Crew {
 public:
  // Whether a helper that is called is woken, or may come when it looks for itself.
  enum class Call { urgent, casual };

  Crew(std::size_t helpers, Share::Invoke invoke, void* context)
      : pool_((check_not_forked(), WorkerPool::instance())),
        share_(pool_.lease(helpers + 1)),
        was_inside_(std::exchange(inside_team, true)) {
    share_.invoke = invoke;
    share_.context = context;
    share_.kind = Share::Kind::helpers;
    share_.settled = share_.team->settled;
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  ~Crew() {
    inside_team = was_inside_;
    // A forked child has no helpers to wait for, and nobody may lease them again.
    if (forked()) return;
    part();
    pool_.give_back(*share_.team);
  }

  std::size_t helpers() const { return share_.team_size - 1; }

  void call(std::size_t helper, Call how) noexcept {
    share_.team->pending.fetch_add(Team::kShare, std::memory_order_relaxed);
    pool_.post(share_, helper, how == Call::urgent ? Post::offer : Post::casual_offer);
  }

  // Lets a helper that was called casually come at once.
  void hurry(std::size_t helper) noexcept { share_.team->workers[helper - 1]->box.hurry(); }

  // Returns when every helper that came has ended; those that have not come by then never will.
  void dismiss() {
    check_not_forked();
    part();
  }

 private:
  void part() noexcept {
    std::atomic<std::uint32_t>& pending = share_.team->pending;
    if (pending.load(std::memory_order_acquire) == share_.settled) return;
    for (Worker* worker : share_.team->workers) {
      if (worker->box.withdraw()) pending.fetch_sub(Team::kShare, std::memory_order_relaxed);
    }
    WorkerPool::join(share_);
  }

  WorkerPool& pool_;
  Share share_;
  const bool was_inside_;
};

}  // namespace lockstep::detail
