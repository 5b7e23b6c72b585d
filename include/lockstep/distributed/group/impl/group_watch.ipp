// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/group_watch.hpp>
#include <lockstep/distributed/group/rank_watcher.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE GroupWatch::GroupWatch(std::shared_ptr<RankWatcher> watcher, std::vector<int> ranks)
    : watcher_(std::move(watcher)),
      ranks_(std::move(ranks)),
      progress_(watcher_ ? watcher_->watch(ranks_) : nullptr) {}

LOCKSTEP_INLINE GroupWatch GroupWatch::part(const std::vector<int>& members) const {
  if (!watcher_) return {};
  std::vector<int> ranks;
  for (const int member : members) ranks.push_back(ranks_[static_cast<std::size_t>(member)]);
  return GroupWatch(watcher_, std::move(ranks));
}

LOCKSTEP_INLINE void GroupWatch::check() const {
  if (faulted()) watcher_->check();
}

LOCKSTEP_INLINE void GroupWatch::abort(std::string reason) const noexcept {
  if (watcher_) watcher_->abort(std::move(reason));
}

}  // namespace lockstep::distributed::detail
