// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/threads/crew.hpp>
#include <lockstep/backend/threads/pace.hpp>
#include <lockstep/config.hpp>
#include <lockstep/function_ref.hpp>

#include <atomic>
#include <cstddef>
#include <exception>

namespace lockstep::detail {

// The crew of the calling thread's innermost `run_shared` if its first helper was called with low
// priority; null otherwise.
inline constinit thread_local Crew* low_priority_crew = nullptr;

// To be called before the calling thread waits for another share of its run_shared: makes the first
// helper come at once if it was called with low priority.
inline void make_first_helper_urgent() {
  if (low_priority_crew != nullptr) low_priority_crew->make_urgent(1);
}

// The shares of one `run_shared`: a thread that is free takes the next one.
//
// Each share is begun in the end, even if others wait for it: a helper that comes calls two more as
// long as shares are left, before it begins a share itself. The caller has called the first helper,
// which is on its way or has come; so the caller may take shares without calling anybody.
//
// Threads: the caller and the helpers. What the shares read and write is ordered by the Crew's
// calls and its end; the atomics order nothing.
class SharedShares {
 public:
  SharedShares(std::size_t count, FunctionRef<void(std::size_t index)> share, bool low_priority)
      : count_(count), share_(share), low_priority_(low_priority), crew_(count - 1, *this) {}
  ~SharedShares() {
    if (!failed_.load(std::memory_order_relaxed)) return;
    // Errors are left only if on_error has thrown.
    for (std::size_t index = 1; index < count_; ++index) crew_.error(index) = nullptr;
  }

  // Runs all shares, and then hands each error to `on_error(index, exception_ptr)`, in their order.
  void run(Pace& pace, FunctionRef<void(std::size_t index, std::exception_ptr error)> on_error);

  // What a helper does that has come: for the crew alone.
  void operator()(std::size_t helper);

 private:
  std::size_t take() { return next_.fetch_add(1, std::memory_order_relaxed); }

  void run_rest() noexcept {
    for (std::size_t index = take(); index < count_; index = take()) run_share(index);
  }

  void run_share(std::size_t index) noexcept;

  // The place for what a share throws, whichever thread runs it. It is made beforehand, since there
  // may be no memory for it then.
  std::exception_ptr& error_of(std::size_t index) noexcept {
    return index == 0 ? first_error_ : crew_.error(index);
  }

  const std::size_t count_;
  const FunctionRef<void(std::size_t index)> share_;
  const bool low_priority_;                // whether the first helper is called with low priority
  std::atomic<Pace::Clock::rep> work_{0};  // the time that all shares took, unless low_priority_
  std::atomic<std::size_t> next_{1};
  std::atomic<bool> failed_{false};  // whether any share has thrown
  std::exception_ptr first_error_;   // share 0's
  Crew crew_;  // the last member: no helper comes before or after the others exist
};

// Runs share(0) … share(n - 1), n at least 2, by as many threads as pays, and returns when all have
// ended. Each error goes to `on_error(index, exception_ptr)` then, in the order of the shares, on
// the calling thread.
//
// Share 0 runs on the calling thread. The others run on worker threads or, one after another, on
// threads that have ended their share before, the caller's too: so each share sets for itself what
// it needs of a thread's state. A share may wait for another one: whatever threads are busy or
// blocked, each share is begun in the end.
//
// `pace` is that of the same work at earlier calls: if it was short the caller starts alone, and
// wakes nobody unless it turns out to be longer.
//
// **Threads and exceptions.** As run_team.
inline void run_shared(std::size_t n, Pace& pace, FunctionRef<void(std::size_t index)> share,
                       FunctionRef<void(std::size_t index, std::exception_ptr error)> on_error) {
  SharedShares(n, share, pace.is_short()).run(pace, on_error);
}

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/backend/threads/impl/shared_shares.ipp>
#endif
