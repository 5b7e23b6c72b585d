// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/backend/threads/park.hpp>
#include <lockstep/backend/threads/spin_wait.hpp>
#include <lockstep/distributed/work.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>

namespace lockstep::distributed {

LOCKSTEP_INLINE void Work::wait() const {
  if (!state_) return;
  std::uint32_t last = state_->ended.load(std::memory_order_acquire);
  if (last == detail::WorkState::kRunning) lockstep::detail::check_not_forked();
  lockstep::detail::spin_then_park(state_->ended, [&last](std::uint32_t ended) {
    last = ended;
    return ended != detail::WorkState::kRunning;
  });
  if (last == detail::WorkState::kFailed) std::rethrow_exception(*error_);
  if (state_->gpu) current_stream(*state_->gpu).wait_event(state_->issued);
}

LOCKSTEP_INLINE bool Work::is_completed() const {
  if (!state_) return true;
  const std::uint32_t ended = state_->ended.load(std::memory_order_acquire);
  return ended == detail::WorkState::kFailed ||
         (ended == detail::WorkState::kSucceeded && (!state_->gpu || state_->issued.query()));
}

LOCKSTEP_INLINE std::exception_ptr Work::exception() const {
  const bool failed =
      state_ && state_->ended.load(std::memory_order_acquire) == detail::WorkState::kFailed;
  return failed ? *error_ : std::exception_ptr();
}

}  // namespace lockstep::distributed

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE Completion::Completion(Work& work) : state_(std::make_shared<WorkState>()) {
  work.state_ = state_;
  work.error_ = std::make_shared<std::exception_ptr>();
  error_ = work.error_;
}

LOCKSTEP_INLINE void Completion::finish(std::exception_ptr error) const noexcept {
  const std::uint32_t ended = error ? WorkState::kFailed : WorkState::kSucceeded;
  if (const auto seen = error_.lock()) *seen = std::move(error);
  // An exchange: a store might become visible only after the check for parked threads.
  state_->ended.exchange(ended, std::memory_order_acq_rel);
  lockstep::detail::unpark_counted(state_->ended);
}

LOCKSTEP_INLINE void Completion::fail(std::exception_ptr error) const noexcept {
  // Only this thread writes `ended`.
  if (state_->ended.load(std::memory_order_relaxed) != WorkState::kSucceeded) return;
  if (const auto seen = error_.lock()) *seen = std::move(error);
  state_->ended.store(WorkState::kFailed, std::memory_order_release);
}

}  // namespace lockstep::distributed::detail
