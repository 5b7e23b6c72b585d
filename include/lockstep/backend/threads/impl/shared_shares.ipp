// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/threads/crew.hpp>
#include <lockstep/backend/threads/pace.hpp>
#include <lockstep/backend/threads/shared_shares.hpp>
#include <lockstep/function_ref.hpp>

#include <atomic>
#include <cstddef>
#include <exception>
#include <utility>

namespace lockstep::detail {

LOCKSTEP_INLINE void SharedShares::run(
    Pace& pace, FunctionRef<void(std::size_t index, std::exception_ptr error)> on_error) {
  const Pace::Clock::time_point begin = Pace::Clock::now();
  crew_.call(1, low_priority_ ? Crew::Call::low_priority : Crew::Call::urgent);
  Crew* const outer = std::exchange(low_priority_crew, low_priority_ ? &crew_ : nullptr);
  run_share(0);
  if (low_priority_ && !Pace::is_short(Pace::Clock::now() - begin)) crew_.make_urgent(1);
  run_rest();
  low_priority_crew = outer;
  crew_.dismiss();
  // With low priority the elapsed time will do: without a helper the caller has done all the work,
  // and with a helper the work was not short.
  pace.measured(low_priority_ ? Pace::Clock::now() - begin : Pace::Clock::duration(work_.load()));
  if (!failed_.load(std::memory_order_relaxed)) return;
  for (std::size_t index = 0; index < count_; ++index) {
    std::exception_ptr error = std::exchange(error_of(index), nullptr);
    if (error) on_error(index, std::move(error));
  }
}

LOCKSTEP_INLINE void SharedShares::operator()(std::size_t helper) {
  const std::size_t index = take();
  if (index >= count_) return;
  for (std::size_t next = 2 * helper; next <= 2 * helper + 1; ++next) {
    if (next <= crew_.helpers() && next_.load(std::memory_order_relaxed) < count_) {
      crew_.call(next, Crew::Call::urgent);
    }
  }
  run_share(index);
  run_rest();
}

LOCKSTEP_INLINE void SharedShares::run_share(std::size_t index) noexcept {
  const auto begin = low_priority_ ? Pace::Clock::time_point() : Pace::Clock::now();
  if (std::exception_ptr error = thrown_by([&] { share_(index); })) {
    error_of(index) = std::move(error);
    failed_.store(true, std::memory_order_relaxed);
  }
  if (!low_priority_)
    work_.fetch_add((Pace::Clock::now() - begin).count(), std::memory_order_relaxed);
}

}  // namespace lockstep::detail
