// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/group/rank_watcher.hpp>
#include <lockstep/distributed/watchdog/watchdog_progress.hpp>

#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::distributed::detail {

// A group's entry with the Watchdog of its rank: the ranks that it has, and how far this one is in
// its collectives. A default-constructed one watches nothing, and never knows of a fault.
class GroupWatch {
 public:
  GroupWatch() = default;
  // `ranks` are the group's, by their numbers in the watcher's world. All of them make one; if
  // several groups have the same ranks, all make theirs in the same order.
  GroupWatch(std::shared_ptr<RankWatcher> watcher, std::vector<int> ranks);

  // The entry of a new group of some of this group's ranks.
  GroupWatch part(const std::vector<int>& members) const;

  bool faulted() const noexcept { return watcher_ && watcher_->faulted(); }
  // The WatchdogError that says what has happened to the ranks, or null.
  std::exception_ptr exception() const { return watcher_ ? watcher_->exception() : nullptr; }
  void check() const;

  // Tells all ranks of the watcher's world that this one has failed. Needs no memory.
  void abort(std::string reason) const noexcept;

  // Null where nobody watches.
  Progress* progress() const { return progress_.get(); }

 private:
  std::shared_ptr<RankWatcher> watcher_;
  std::vector<int> ranks_;
  std::shared_ptr<Progress> progress_;
};

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/group/impl/group_watch.ipp>
#endif
