// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/relayed_error.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/distributed/group/departure.hpp>
#include <lockstep/distributed/thread/thread_world.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE ThreadWorld::ThreadWorld(int size, std::span<const Device> devices)
    : ThreadWorld(named(size, devices)) {}

LOCKSTEP_INLINE ThreadWorld::ThreadWorld(const ThreadWorld& whole, std::span<const int> members)
    : ThreadWorld(whole.named(members)) {}

LOCKSTEP_INLINE ThreadWorld::ThreadWorld(std::vector<Departure> ranks)
    : meeting(static_cast<int>(ranks.size())),
      parting(static_cast<int>(ranks.size())),
      mailbox(ranks.size()),
      slots_(new std::array<Slot, 2>[ranks.size()]),
      ranks_(std::move(ranks)) {
  const auto on_gpu = [](const Departure& rank) { return rank.device && rank.device->is_cuda(); };
  if (!std::all_of(ranks_.begin(), ranks_.end(), on_gpu)) return;
  for (const Departure& rank : ranks_) gpus_.push_back(*rank.device);
}

LOCKSTEP_INLINE std::vector<Departure> ThreadWorld::named(int size,
                                                          std::span<const Device> devices) {
  std::vector<Departure> ranks(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    ranks[i].rank = static_cast<int>(i);
    if (!devices.empty()) ranks[i].device = devices[i];
  }
  return ranks;
}

LOCKSTEP_INLINE std::vector<Departure> ThreadWorld::named(std::span<const int> members) const {
  std::vector<Departure> ranks(members.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const Departure& rank = ranks_[static_cast<std::size_t>(members[i])];
    ranks[i].rank = rank.rank;
    ranks[i].device = rank.device;
  }
  return ranks;
}

LOCKSTEP_INLINE void ThreadWorld::leave(int rank, const std::exception_ptr& error) noexcept {
  set_gone(rank, error ? std::optional(lockstep::detail::described(error)) : std::nullopt);
}

LOCKSTEP_INLINE void ThreadWorld::set_gone(
    int rank, const std::optional<lockstep::detail::DescribedError>& thrown) noexcept {
  const std::lock_guard lock(mutex_);
  Departure& mine = ranks_[static_cast<std::size_t>(rank)];
  if (mine.gone) return;
  const auto is_gone = [](const Departure& one) { return one.gone; };
  if (std::none_of(ranks_.begin(), ranks_.end(), is_gone)) {
    first_gone_ = static_cast<std::size_t>(rank);
  }
  mine.gone = true;
  mine.thrown = thrown;
  meeting.break_off();
  mailbox.leave(rank, mine);
  for (const Part& part : parts_) {
    const auto at = std::find(part.members.begin(), part.members.end(), rank);
    const auto world = part.world.lock();
    if (world && at != part.members.end()) {
      world->set_gone(static_cast<int>(at - part.members.begin()), thrown);
    }
  }
}

LOCKSTEP_INLINE void ThreadWorld::add_part(const std::shared_ptr<ThreadWorld>& world,
                                           std::span<const int> members) {
  const std::lock_guard lock(mutex_);
  std::erase_if(parts_, [](const Part& part) { return part.world.expired(); });
  parts_.push_back({world, {members.begin(), members.end()}});
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Departure& rank = ranks_[static_cast<std::size_t>(members[i])];
    if (rank.gone) world->set_gone(static_cast<int>(i), rank.thrown);
  }
}

LOCKSTEP_INLINE Departure ThreadWorld::first_departure() const {
  const std::lock_guard lock(mutex_);
  return ranks_[first_gone_];
}

}  // namespace lockstep::distributed::detail
