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

// The crew of the calling thread's innermost `run_shared` if it called its first helper with low
// priority; otherwise null.
inline constinit thread_local Crew* low_priority_crew = nullptr;

// Call it before the calling thread waits for another share of its run_shared: a first helper
// called with low priority then comes at once.
inline void make_first_helper_urgent() {
  if (low_priority_crew != nullptr) low_priority_crew->make_urgent(1);
}

// The shares of one `run_shared`: a free thread takes the next one.
//
// Every share is begun in the end, even if others wait for it: a helper that comes first calls two
// more while shares are left. The caller has called the first helper, so it may take shares without
// calling anyone.
//
// Threads: the caller and the helpers. The Crew's calls and its end order what the shares read and
// write; the atomics order nothing.
class SharedShares {
 public:
  SharedShares(std::size_t count, FunctionRef<void(std::size_t index)> share, bool low_priority)
      : count_(count), share_(share), low_priority_(low_priority), crew_(count - 1, *this) {}
  ~SharedShares() {
    if (!failed_.load(std::memory_order_relaxed)) return;
    // Errors are left only if on_error has thrown.
    for (std::size_t index = 1; index < count_; ++index) crew_.error(index) = nullptr;
  }

  // Runs all shares, then hands each error to `on_error(index, exception_ptr)`, in order.
  void run(Pace& pace, FunctionRef<void(std::size_t index, std::exception_ptr error)> on_error);

  // What a helper does once it has come. Called only by the crew.
  void operator()(std::size_t helper);

 private:
  std::size_t take() { return next_.fetch_add(1, std::memory_order_relaxed); }

  void run_rest() noexcept {
    for (std::size_t index = take(); index < count_; index = take()) run_share(index);
  }

  void run_share(std::size_t index) noexcept;

  // The place for a share's exception, whichever thread runs it. It exists beforehand, since memory
  // may have run out by then.
  std::exception_ptr& error_of(std::size_t index) noexcept {
    return index == 0 ? first_error_ : crew_.error(index);
  }

  const std::size_t count_;
  const FunctionRef<void(std::size_t index)> share_;
  const bool low_priority_;                // the first helper is called with low priority
  std::atomic<Pace::Clock::rep> work_{0};  // the time that all shares took, unless low_priority_
  std::atomic<std::size_t> next_{1};
  std::atomic<bool> failed_{false};  // a share has thrown
  std::exception_ptr first_error_;   // share 0's
  Crew crew_;  // the last member: no helper comes before or after the others exist
};

// Runs share(0) … share(n - 1), for n of at least 2, on as many threads as pays, and returns when
// all have ended. Then hands each error to `on_error(index, exception_ptr)` on the calling thread,
// in order.
//
// Share 0 runs on the calling thread. The others run on worker threads or on threads that have
// ended an earlier share, including the caller, so each share sets the thread state that it needs.
// Shares may wait for each other: every share is begun in the end, whatever threads are blocked.
//
// `pace` is that of earlier calls for the same work: if it was short, the caller starts alone, and
// wakes nobody unless it turns out longer.
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
