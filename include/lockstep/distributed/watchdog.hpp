// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/fault.hpp>
#include <lockstep/distributed/rank_failure.hpp>
#include <lockstep/distributed/rank_watcher.hpp>
#include <lockstep/distributed/store.hpp>
#include <lockstep/distributed/watchdog_options.hpp>
#include <lockstep/distributed/watchdog_progress.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::distributed {

namespace detail {
class WatchdogClient;
class WatchdogServer;
}  // namespace detail

// What is thrown on a rank for what has happened to another: names that one, and the collective
// that waits for it. Other ranks that were found to have failed as well are listed after it.
class WatchdogError : public RankGone {
 public:
  WatchdogError(const std::string& text, std::vector<Fault> faults)
      : RankGone(text), faults_(std::move(faults)) {}

  // In the order in which they were found; at least one.
  const std::vector<Fault>& faults() const { return faults_; }

 private:
  std::vector<Fault> faults_;
};

// Sees to it that no rank waits for ever for one that has died, hangs or has left a collective out:
// a process of each rank tells rank 0 by TCP, every so often, in which collective it is, and rank 0
// tells all of them who is missing.
//
// It finds a process that has ended without a goodbye (at once: the system closes its connection);
// one that does not answer; one that says that it has failed; one that is in another collective
// than the others, or in none while they wait for it, too long, or for ever, because it has ended.
// A rank that computes for long is none of these as long as nobody waits too long for it. A rank
// that ends says goodbye in the destructor; ranks may end in any order. Once rank 0 has ended so,
// the others are watched no further than by themselves.
//
// **Torch counterpart.** The watchdog thread and the heartbeats of ProcessGroupNCCL.
// **Threads and exceptions.** Every rank makes one, in its process; the constructor waits for rank
// 0's, but for no other: a rank that has not come within the store's time limit is a fault. Its own
// thread, and one more on rank 0, end in the destructor, which waits for rank 0 for two seconds at
// most. Any thread may call the members. A child that is forked keeps the connection, and so hides
// for a while that its parent has died; one that calls exec does not.
// **Example.**
//
//     Watchdog watchdog(rank, size, store, WatchdogOptions::from_environment(),
//                       [&] { carrier.break_off(); });
//     const auto progress = watchdog.watch({0, 1, 2, 3});
//     {
//       const InCollective here(progress.get(), call);
//       ...                       // the collective, which `break_off` ends
//     }
//     watchdog.check();           // WatchdogError: "rank 2 has died: ..."
class Watchdog : public detail::RankWatcher {
 public:
  // `store` connects the ranks: rank 0 leaves its address under "watchdog", so each watchdog needs
  // a store, or a PrefixStore, of its own. `on_fault` is called once, by the watchdog's thread,
  // when the first fault is known; it releases what waits in a collective, and must not destroy the
  // watchdog.
  Watchdog(int rank, int size, Store& store, const WatchdogOptions& options = {},
           std::function<void()> on_fault = {});
  // A goodbye; but where an exception unwinds the stack, an `abort`.
  LOCKSTEP_INLINE ~Watchdog() override;

  const WatchdogOptions& options() const { return options_; }

  // From here on watches a group of ranks, in the group's order and this rank among them, through
  // the Progress that is returned, for as long as that has an owner. Null in a world of one: nobody
  // can be missing. All of the ranks call it, and for groups of the same ranks in the same order.
  LOCKSTEP_INLINE std::shared_ptr<Progress> watch(const std::vector<int>& ranks) override;

  // How many groups it watches: those whose Progress has an owner, and for an interval others.
  std::size_t groups() const;

  // What has been found up to here.
  std::vector<Fault> faults() const;

  // True once something has been found. As cheap as reading a variable.
  using RankWatcher::faulted;
  // A WatchdogError if something has been found, or null.
  LOCKSTEP_INLINE std::exception_ptr exception() const override;
  // Throws it.
  using RankWatcher::check;

  // This rank comes to no collective any more: whoever waits for it in one is told so at once. It
  // is still watched, and still hears of the others' faults.
  void finish();

  // Says goodbye before the destructor would, and as that does: nothing is found from here on. On
  // rank 0 it also ends what serves the others. Called by one thread.
  void leave();

  // Tells all ranks that this one has failed, and why: before it ends because of an exception. Rank
  // 0, which tells the others, knows when it returns, unless it cannot be reached.
  LOCKSTEP_INLINE void abort(std::string reason) noexcept override;

 private:
  static std::uint64_t random_token();

  static std::string host_name(const WatchdogOptions& options);

  const int rank_;
  const int size_;
  const WatchdogOptions options_;
  const int exceptions_;  // under way when it was made
  // The client says goodbye while the server is there.
  std::unique_ptr<detail::WatchdogServer> server_;
  std::unique_ptr<detail::WatchdogClient> client_;
};

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/watchdog.ipp>
#endif
