// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/watchdog/watchdog_progress.hpp>
#include <lockstep/non_copyable.hpp>

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

// The part of the Watchdog that a group uses, without its sockets. The Watchdog finds ranks that
// have failed.
class RankWatcher : lockstep::detail::NonCopyable {
 public:
  virtual ~RankWatcher() = default;

  virtual std::shared_ptr<Progress> watch(const std::vector<int>& ranks) = 0;

  // True once a fault has been found.
  bool faulted() const noexcept { return faulted_.load(std::memory_order_acquire); }

  // The error that lists the faults found, or null.
  virtual std::exception_ptr exception() const = 0;
  // Throws that error, if there is one.
  void check() const {
    if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
  }

  virtual void abort(std::string reason) noexcept = 0;

 protected:
  std::atomic<bool> faulted_{false};  // set by the first fault; publishes nothing
};

// A group's entry in its rank's Watchdog: its ranks, and how far this rank is in its collectives. A
// default-constructed one watches nothing and never finds a fault.
class GroupWatch {
 public:
  GroupWatch() = default;
  // `ranks` are the group's, by their numbers in the watcher's world. All of them make one; groups
  // of the same ranks make theirs in the same order on all ranks.
  GroupWatch(std::shared_ptr<RankWatcher> watcher, std::vector<int> ranks)
      : watcher_(std::move(watcher)),
        ranks_(std::move(ranks)),
        progress_(watcher_ ? watcher_->watch(ranks_) : nullptr) {}

  // The entry of a new group of some of this group's ranks.
  GroupWatch part(const std::vector<int>& members) const {
    if (!watcher_) return {};
    std::vector<int> ranks;
    for (const int member : members) ranks.push_back(ranks_[static_cast<std::size_t>(member)]);
    return GroupWatch(watcher_, std::move(ranks));
  }

  bool faulted() const noexcept { return watcher_ && watcher_->faulted(); }
  // The WatchdogError that lists the faults, or null.
  std::exception_ptr exception() const { return watcher_ ? watcher_->exception() : nullptr; }
  void check() const {
    if (faulted()) watcher_->check();
  }

  // Tells all ranks of the watcher's world that this one has failed. Allocates nothing.
  void abort(std::string reason) const noexcept {
    if (watcher_) watcher_->abort(std::move(reason));
  }

  // Null if there is no watchdog.
  Progress* progress() const { return progress_.get(); }

 private:
  std::shared_ptr<RankWatcher> watcher_;
  std::vector<int> ranks_;
  std::shared_ptr<Progress> progress_;
};

}  // namespace lockstep::distributed::detail
