// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/group/group_watch.hpp>
#include <lockstep/distributed/store/store.hpp>
#include <lockstep/error.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::nccl::detail {

// Finds out which of the ranks that share a store have come: each sets a key in it, so that those
// that wait can name the others.
class RankArrivals {
 public:
  // `about`: the prefix of this one's keys in the store.
  RankArrivals(int rank, int size, distributed::Store& store, std::string about)
      : rank_(rank), size_(size), store_(store), about_(std::move(about)) {}

  void arrive() { store_.set(key(rank_), ""); }

  // The ranks whose keys are missing: "rank 1, rank 3". Empty if there are none, or the store
  // fails.
  std::string missing() {
    std::string list;
    try {
      for (int rank = 0; rank < size_; ++rank) {
        const std::vector<std::string> one{key(rank)};
        if (store_.check(one)) continue;
        if (!list.empty()) list += ", ";
        list += lockstep::detail::str("rank ", rank);
      }
    } catch (const std::exception&) {
      list.clear();
    }
    return list;
  }

  // Returns when all have come: rank 0 waits for the others' keys, and then sets the one that they
  // wait for. Throws a StoreError if that takes too long, a WatchdogError if the watchdog has found
  // a rank that will never come.
  void wait_for_all(const distributed::detail::Deadline& deadline,
                    const distributed::detail::GroupWatch& watch) {
    std::vector<std::string> keys{about_ + "/all"};
    if (rank_ == 0) {
      keys.clear();
      for (int other = 1; other < size_; ++other) keys.push_back(key(other));
    }
    distributed::detail::Pause pause;
    while (!store_.check(keys)) {
      watch.check();
      check<distributed::StoreError>(!deadline.passed(), store_.name(), ": rank ", rank_, " of ",
                                     size_, " has waited for the others for ",
                                     distributed::detail::Seconds{deadline.timeout()});
      pause(deadline);
    }
    if (rank_ == 0) store_.set(about_ + "/all", "");
  }

  // For a rank whose time is up. The others' time is up at about the same moment: sets this rank's
  // key, waits up to a second for theirs, and returns the ranks whose keys are still missing, that
  // is, those that have ended. Empty if the store fails.
  std::string missing_after_grace() {
    try {
      arrive();
      const distributed::detail::Deadline grace(
          std::min<std::chrono::milliseconds>(store_.timeout(), std::chrono::seconds(1)));
      distributed::detail::Pause pause;
      while (!missing().empty() && !grace.passed()) pause(grace);
    } catch (const std::exception&) {
      return {};
    }
    return missing();
  }

 private:
  std::string key(int rank) const { return lockstep::detail::str(about_, "/rank ", rank); }

  const int rank_;
  const int size_;
  distributed::Store& store_;
  const std::string about_;
};

}  // namespace lockstep::nccl::detail
