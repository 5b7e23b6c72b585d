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

// Thrown on a rank because another one has failed: names that rank, and the collective that waits
// for it. Other ranks that have failed are listed after it.
class WatchdogError : public RankGone {
 public:
  WatchdogError(const std::string& text, std::vector<Fault> faults)
      : RankGone(text), faults_(std::move(faults)) {}

  // At least one fault, in the order in which they were found.
  const std::vector<Fault>& faults() const { return faults_; }

 private:
  std::vector<Fault> faults_;
};

// Makes sure that no rank waits for ever for one that has died, hangs or skipped a collective. In
// each rank's process a thread tells rank 0 over TCP, once an interval, which collective the rank
// is in; rank 0 tells all who is missing.
//
// It finds a process that has ended without saying goodbye (at once: the system closes its
// connection); one that does not answer; one that reports its own failure; one whose collective
// differs from the others'; and one for which others have waited too long in a collective, or wait
// after it has ended. A rank may compute for as long as it likes if nobody waits too long for it.
//
// A rank says goodbye in the destructor; ranks may end in any order. Once rank 0 has said goodbye,
// each of the others watches only itself.
//
// **Torch counterpart.** The watchdog thread and the heartbeats of ProcessGroupNCCL.
// **Threads and exceptions.** Every rank makes one, in its process. The constructor waits only for
// rank 0's; a rank that does not connect within the store's time limit is a fault. The destructor
// ends the thread, and one more on rank 0, and waits for rank 0 for two seconds at most. Any thread
// may call the members. A forked child keeps the connection open unless it calls exec, and so
// delays the discovery that its parent has died.
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
  // Rank 0 leaves its address in `store` under "watchdog", so each watchdog needs a store, or a
  // PrefixStore, of its own. Rank 0's options apply to all. The watchdog's thread calls `on_fault`
  // once, when it knows of the first fault: to release what waits in a collective. It must not
  // destroy the watchdog.
  Watchdog(int rank, int size, Store& store, const WatchdogOptions& options = {},
           std::function<void()> on_fault = {});
  // Says goodbye. If an exception is unwinding the stack, calls `abort` first.
  LOCKSTEP_INLINE ~Watchdog() override;

  const WatchdogOptions& options() const { return options_; }

  // Watches a group of ranks until the Progress that it returns has no owner. `ranks` are in the
  // group's order and include this one. All of them call it, in the same order for groups of the
  // same ranks. Null in a world of one.
  LOCKSTEP_INLINE std::shared_ptr<Progress> watch(const std::vector<int>& ranks) override;

  // The number of groups it watches: those whose Progress has an owner, and for up to an interval
  // those that have just lost theirs.
  std::size_t groups() const;

  // The faults found so far.
  std::vector<Fault> faults() const;

  // True once a fault has been found.
  using RankWatcher::faulted;
  // The WatchdogError that lists the faults, or null.
  LOCKSTEP_INLINE std::exception_ptr exception() const override;
  // Throws that error, if there is one.
  using RankWatcher::check;

  // Says that this rank takes part in no further collective: whoever waits for it in one is told
  // within two intervals. It is still watched, and still told of others' faults.
  void finish();

  // Says goodbye now, as the destructor does: no fault is found any more. On rank 0 it also ends
  // the thread that serves the others. Only one thread may call it.
  void leave();

  // Tells all ranks that this one has failed, and why. Call it before the process ends because of
  // an exception. When it returns, rank 0 knows, unless it cannot be reached, and tells the others.
  LOCKSTEP_INLINE void abort(std::string reason) noexcept override;

 private:
  static std::string host_name(const WatchdogOptions& options);

  const int rank_;
  const int size_;
  WatchdogOptions options_;                                     // set by the constructor alone
  const int exceptions_;                                        // in flight when it was made
  std::string unwinding_reason_ = "an exception has ended it";  // made now, while there is memory
  // Before the client, which says goodbye while the server lives.
  std::unique_ptr<detail::WatchdogServer> server_;
  std::unique_ptr<detail::WatchdogClient> client_;
};

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/watchdog/impl/watchdog.ipp>
#endif
