// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/group/fault.hpp>
#include <lockstep/distributed/group/group_watch.hpp>
#include <lockstep/distributed/group/rank_failure.hpp>
#include <lockstep/distributed/store/store.hpp>
#include <lockstep/distributed/watchdog/watchdog_options.hpp>
#include <lockstep/distributed/watchdog/watchdog_progress.hpp>

#include <cstddef>
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

// Thrown on a rank because of what has happened to another one: names that rank, and the collective
// that waits for it. Other ranks that were found to have failed as well are listed after it.
class WatchdogError : public RankGone {
 public:
  WatchdogError(const std::string& text, std::vector<Fault> faults)
      : RankGone(text), faults_(std::move(faults)) {}

  // The faults in the order in which they were found; at least one.
  const std::vector<Fault>& faults() const { return faults_; }

 private:
  std::vector<Fault> faults_;
};

// Sees to it that no rank waits for ever for one that has died, hangs or has left out a collective:
// a thread in the process of each rank tells rank 0 by TCP, once an interval, in which collective
// the rank is, and rank 0 tells all of them who is missing.
//
// It finds a process that has ended without a goodbye (at once: the system closes its connection);
// one that does not answer; one that says that it has failed; one that is in another collective
// than the others; and one for which others wait in a collective for too long, or after it has
// ended. A rank that computes for long is none of these as long as nobody waits too long for it. A
// rank that ends says goodbye in the destructor; ranks may end in any order. Once rank 0 has ended
// so, each of the others watches only itself.
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
//                       [&] { stop_waiting(); });
//     const auto progress = watchdog.watch({0, 1, 2, 3});
//     {
//       const InCollective here(progress.get(), call);
//       ...                       // the collective, which `stop_waiting` ends
//     }
//     watchdog.check();           // WatchdogError: "rank 2 has died: ..."
class Watchdog : public detail::RankWatcher {
 public:
  // `store` connects the ranks: rank 0 leaves its address under "watchdog", so each watchdog needs
  // a store, or a PrefixStore, of its own. The options of rank 0 are those of all. `on_fault` is
  // called once, by the watchdog's thread, when the first fault is known; it releases what waits in
  // a collective, and must not destroy the watchdog.
  Watchdog(int rank, int size, Store& store, const WatchdogOptions& options = {},
           std::function<void()> on_fault = {});
  // Says goodbye; where an exception unwinds the stack, calls `abort` before.
  LOCKSTEP_INLINE ~Watchdog() override;

  const WatchdogOptions& options() const { return options_; }

  // Watches a group of ranks from here on, for as long as the Progress that is returned has an
  // owner. `ranks` are in the group's order, this rank among them. All of them call it; if several
  // groups have the same ranks, all call it for these in the same order. Null in a world of one:
  // nobody can be missing.
  LOCKSTEP_INLINE std::shared_ptr<Progress> watch(const std::vector<int>& ranks) override;

  // How many groups it watches: those whose Progress has an owner, and for up to an interval those
  // whose last owner has gone.
  std::size_t groups() const;

  // The faults found up to here.
  std::vector<Fault> faults() const;

  // True once a fault has been found. As cheap as reading a variable.
  using RankWatcher::faulted;
  // The WatchdogError of what has been found, or null.
  LOCKSTEP_INLINE std::exception_ptr exception() const override;
  // Throws that error, if there is one.
  using RankWatcher::check;

  // Says that this rank comes to no collective any more: whoever still waits for it in one is told
  // within two intervals. It is still watched, and still hears of the others' faults.
  void finish();

  // Says goodbye, as the destructor would later: nothing is found from here on. On rank 0 it also
  // ends the thread that serves the others. Called by one thread.
  void leave();

  // Tells all ranks that this one has failed, and why: before it ends because of an exception. Rank
  // 0, which tells the others, knows when it returns, unless it cannot be reached.
  LOCKSTEP_INLINE void abort(std::string reason) noexcept override;

 private:
  static std::string host_name(const WatchdogOptions& options);

  const int rank_;
  const int size_;
  WatchdogOptions options_;                            // set by the constructor alone
  const int exceptions_;                               // under way when it was made
  std::string unwound_ = "an exception has ended it";  // there may be no memory for it later
  // Before the client, which says goodbye while the server is there.
  std::unique_ptr<detail::WatchdogServer> server_;
  std::unique_ptr<detail::WatchdogClient> client_;
};

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/watchdog/impl/watchdog.ipp>
#endif
