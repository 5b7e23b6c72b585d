// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/threads/park.hpp>
#include <lockstep/backend/threads/shared_core.hpp>
#include <lockstep/backend/threads/spin_wait.hpp>
#include <lockstep/backend/threads/worker_mailbox.hpp>
#include <lockstep/backend/threads/worker_pool.hpp>
#include <lockstep/device/cores.hpp>
#include <lockstep/error.hpp>
#include <lockstep/function_ref.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

namespace lockstep::detail {

LOCKSTEP_INLINE WorkerPool& WorkerPool::instance() { return never_destroyed<WorkerPool>(); }

LOCKSTEP_INLINE TeamStats WorkerPool::stats() {
  const std::lock_guard lock(mutex_);
  return {threads_created_,
          shares_posted_,
          parks_.load(std::memory_order_relaxed),
          wake_ups_.load(std::memory_order_relaxed),
          running_,
          cores_};
}

LOCKSTEP_INLINE Share WorkerPool::lease(std::size_t size) {
  const std::size_t count = size - 1;
  stay_loaded();
  const std::lock_guard lock(mutex_);
  while (free_.size() < count) create_worker(size);
  Team& team = free_.back()->own_team;
  team.workers.reserve(count);
  team.workers.clear();
  for (std::size_t i = 0; i < count; ++i) {
    team.workers.push_back(free_.back());
    free_.pop_back();
  }
  running_ += added_threads(count);
  shares_posted_ += count;
  return {.team = &team, .team_size = size, .spin = running_ <= cores_};
}

LOCKSTEP_INLINE void WorkerPool::give_back(Team& team) noexcept {
  const std::lock_guard lock(mutex_);
  running_ -= added_threads(team.workers.size());
  // Does not allocate: `create_worker` has reserved a place for each worker.
  for (std::size_t i = team.workers.size(); i-- > 0;) free_.push_back(team.workers[i]);
}

LOCKSTEP_INLINE void WorkerPool::create_worker(std::size_t team_size) {
  free_.reserve(threads_created_ + 1);
  auto worker = std::make_unique<Worker>();
  worker->own_team.workers.reserve(kUsualWorkers);
  start_detached(str("run_team: ", team_size, " shares need ", team_size - 1,
                     " free worker threads, there are ", free_.size(), " (of ", threads_created_,
                     " in the process) and no more could be started"),
                 [this, &self = *worker] { serve(self); });
  // At the bottom of the stack, so that warm ones stay at the top.
  free_.insert(free_.begin(), worker.release());
  ++threads_created_;
}

LOCKSTEP_INLINE void WorkerPool::post(const Share& from, std::size_t index, Post kind) noexcept {
  Share share = from;
  share.index = index;
  if (from.team->workers[index - 1]->mailbox.post(share, kind)) {
    wake_ups_.fetch_add(1, std::memory_order_relaxed);
  }
}

LOCKSTEP_INLINE void WorkerPool::join(const Share& own) noexcept {
  std::atomic<std::uint32_t>& pending = own.team->pending;
  const auto ended = [&] { return pending.load(std::memory_order_acquire) == own.settled; };
  if (own.spin && callers_core.yield_until(ended)) return;
  if (own.spin ? spin_until(ended) : ended()) return;
  // Set before a worker can see the flag.
  own.team->core_of_waker.store(-1, std::memory_order_relaxed);
  auto value = pending.fetch_or(Team::kCallerParked, std::memory_order_acquire);
  value |= Team::kCallerParked;
  while (value != (own.settled | Team::kCallerParked)) {
    park(pending, value);
    value = pending.load(std::memory_order_acquire);
  }
  pending.fetch_and(~Team::kCallerParked, std::memory_order_relaxed);
  callers_core.woken_from(own.team->core_of_waker.load(std::memory_order_relaxed));
}

LOCKSTEP_INLINE void WorkerPool::serve(Worker& self) noexcept {
  inside_team = true;
  for (bool spin = false;;) {
    self.mailbox.wait(spin, parks_, self.own_team.room);
    spin = false;
    const Share* const message = self.mailbox.accept();
    if (message == nullptr) continue;
    const Share share = *message;
    if (share.kind == Share::Kind::of_team) {
      for (std::size_t next = 2 * share.index; next <= 2 * share.index + 1; ++next) {
        if (next < share.team_size) post(share, next, Post::order);
      }
    }
    if (std::exception_ptr error = share.run()) self.error = std::move(error);
    auto& pending = share.team->pending;
    const std::uint32_t last = (share.settled + Team::kShare) | Team::kCallerParked;
    if (pending.fetch_sub(Team::kShare, std::memory_order_release) == last) {
      share.team->core_of_waker.store(current_core(), std::memory_order_relaxed);
      unpark(pending, 1);
    }
    spin = share.spin;
  }
}

LOCKSTEP_INLINE TeamLease::~TeamLease() {
  if (forked()) return;
  for (Worker* worker : own_.team->workers) {
    if (worker->error) worker->error = nullptr;  // on_error has thrown before
  }
  pool_.give_back(*own_.team);
}

LOCKSTEP_INLINE void TeamLease::run(
    FunctionRef<void(std::size_t index)> share,
    FunctionRef<void(std::size_t index, std::exception_ptr error)> on_error) {
  Team& team = *own_.team;
  team.settled -= Team::kShare * static_cast<std::uint32_t>(team.workers.size());
  own_.settled = team.settled;
  own_.body = share;
  pool_.post(own_, 1, Post::order);
  const bool was_inside = std::exchange(inside_team, true);
  std::exception_ptr own_error = own_.run();
  inside_team = was_inside;
  // A child forked inside share 0 gets here, too, where nobody would end the other shares.
  check_not_forked();
  WorkerPool::join(own_);
  if (own_error) on_error(0, std::move(own_error));
  for (std::size_t i = 1; i < own_.team_size; ++i) {
    std::exception_ptr& error = team.workers[i - 1]->error;
    if (error) on_error(i, std::exchange(error, nullptr));
  }
}

}  // namespace lockstep::detail
