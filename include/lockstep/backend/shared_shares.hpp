// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/crew.hpp>
#include <lockstep/backend/pace.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep::detail {

// The crew of the calling thread's innermost `run_shared` if its first helper was called casually;
// null otherwise.
inline constinit thread_local Crew* expected_crew = nullptr;

// Before the calling thread waits for another share of the same run_shared: calls the threads that
// run those, if they were not in a hurry.
inline void call_expected_crew() {
  if (expected_crew != nullptr) expected_crew->hurry(1);
}

// The shares of one `run_shared`: whoever is free takes the next one.
//
// All make progress together: none that was begun waits for a thread, and none is left behind,
// because a helper that comes calls two more as long as shares are left, before it begins its own.
// The caller has called the first helper, which is on its way or has come; so it may take shares
// without calling anybody.
//
// Threads: the caller and the helpers. What the shares read and write is ordered by the Crew's
// calls and its end; the atomics order nothing.
template <class F>
class SharedShares {
 public:
  SharedShares(std::size_t count, F& share, bool casual)
      : count_(count), share_(share), casual_(casual), crew_(count - 1, help, this) {}

  template <class OnError>
  void run(Pace& pace, OnError on_error) {
    const Pace::Clock::time_point begin = Pace::Clock::now();
    crew_.call(1, casual_ ? Crew::Call::casual : Crew::Call::urgent);
    Crew* const outer = std::exchange(expected_crew, casual_ ? &crew_ : nullptr);
    run_share(0);
    if (casual_ && !Pace::is_short(Pace::Clock::now() - begin)) crew_.hurry(1);
    run_rest();
    expected_crew = outer;
    crew_.dismiss();
    // Where nobody was woken the caller has done the work alone, or it was not short.
    pace.measured(casual_ ? Pace::Clock::now() - begin : Pace::Clock::duration(work_.load()));
    std::sort(failures_.begin(), failures_.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [index, error] : failures_) on_error(index, std::move(error));
  }

 private:
  static void help(void* context, std::size_t helper) {
    auto& self = *static_cast<SharedShares*>(context);
    const std::size_t index = self.take();
    if (index >= self.count_) return;
    for (std::size_t next = 2 * helper; next <= 2 * helper + 1; ++next) {
      if (next <= self.crew_.helpers() &&
          self.next_.load(std::memory_order_relaxed) < self.count_) {
        self.crew_.call(next, Crew::Call::urgent);
      }
    }
    self.run_share(index);
    self.run_rest();
  }

  std::size_t take() { return next_.fetch_add(1, std::memory_order_relaxed); }

  void run_rest() noexcept {
    for (std::size_t index = take(); index < count_; index = take()) run_share(index);
  }

  void run_share(std::size_t index) noexcept {
    const auto begin = casual_ ? Pace::Clock::time_point() : Pace::Clock::now();
    try {
      share_(index);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failures_.emplace_back(index, std::current_exception());
    }
    if (!casual_) work_.fetch_add((Pace::Clock::now() - begin).count(), std::memory_order_relaxed);
  }

  const std::size_t count_;
  F& share_;
  const bool casual_;                      // whether the first helper is called casually
  std::atomic<Pace::Clock::rep> work_{0};  // the time that all shares took, unless casual_
  std::atomic<std::size_t> next_{1};
  std::mutex mutex_;
  std::vector<std::pair<std::size_t, std::exception_ptr>> failures_;  // guarded by mutex_
  Crew crew_;  // the last member: no helper comes before or after the others exist
};

// Runs share(0) … share(n - 1), n at least 2, by as many threads as pays, and returns when all have
// ended. Each error goes to `on_error(index, exception_ptr)` then, in the order of the shares, on
// the calling thread.
//
// Share 0 runs on the calling thread. The others run on worker threads or, one after another, on
// threads that have ended their share before, the caller's too: so a thread's own state is each
// share's to set. Still a share may wait for another: whatever threads are busy or blocked, each
// share is begun in the end.
//
// `pace` is that of the same work at earlier calls: if it was short the caller starts alone, and
// wakes nobody unless it turns out to be longer.
//
// **Threads and exceptions.** As run_team.
template <class F, class OnError>
void run_shared(std::size_t n, Pace& pace, F& share, OnError on_error) {
  SharedShares<F>(n, share, pace.is_short()).run(pace, on_error);
}

}  // namespace lockstep::detail
