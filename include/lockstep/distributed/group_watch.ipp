// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group_watch.hpp>
#include <lockstep/distributed/watchdog.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE GroupWatch::GroupWatch(std::shared_ptr<Watchdog> watchdog, std::vector<int> ranks)
    : watchdog_(std::move(watchdog)),
      ranks_(std::move(ranks)),
      progress_(watchdog_ ? watchdog_->watch(ranks_) : nullptr) {}

LOCKSTEP_INLINE GroupWatch GroupWatch::part(const std::vector<int>& members) const {
  if (!watchdog_) return {};
  std::vector<int> ranks;
  for (const int member : members) ranks.push_back(ranks_[static_cast<std::size_t>(member)]);
  return GroupWatch(watchdog_, std::move(ranks));
}

LOCKSTEP_INLINE void GroupWatch::check() const {
  if (faulted()) watchdog_->check();
}

LOCKSTEP_INLINE void GroupWatch::abort(const std::string& reason) const noexcept {
  if (watchdog_) watchdog_->abort(reason);
}

}  // namespace lockstep::distributed::detail
