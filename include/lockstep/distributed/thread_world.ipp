// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/distributed/thread_world.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE ThreadWorld::ThreadWorld(int size, std::span<const Device> devices)
    : meeting(size),
      parting(size),
      mailbox(size),
      slots_(new std::array<Slot, 2>[static_cast<std::size_t>(size)]),
      gone_(static_cast<std::size_t>(size)) {
  const auto is_gpu = [](Device device) { return device.is_cuda(); };
  if (std::all_of(devices.begin(), devices.end(), is_gpu)) {
    gpus_.assign(devices.begin(), devices.end());
  }
}

LOCKSTEP_INLINE void ThreadWorld::leave(int rank, const std::string& reason) {
  std::vector<std::pair<std::shared_ptr<ThreadWorld>, int>> parts;
  {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = reason;
    gone_[static_cast<std::size_t>(rank)] = reason;
    for (const Part& part : parts_) {
      const auto at = std::find(part.members.begin(), part.members.end(), rank);
      auto world = part.world.lock();
      if (!world || at == part.members.end()) continue;
      parts.emplace_back(std::move(world), static_cast<int>(at - part.members.begin()));
    }
  }
  meeting.break_off();
  mailbox.leave(rank, reason);
  for (const auto& [world, as] : parts) world->leave(as, reason);
}

LOCKSTEP_INLINE void ThreadWorld::add_part(const std::shared_ptr<ThreadWorld>& world,
                                           std::span<const int> members) {
  std::vector<std::string> gone;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(parts_, [](const Part& part) { return part.world.expired(); });
    parts_.push_back({world, {members.begin(), members.end()}});
    gone = gone_;
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::string& reason = gone[static_cast<std::size_t>(members[i])];
    if (!reason.empty()) world->leave(static_cast<int>(i), reason);
  }
}

LOCKSTEP_INLINE std::string ThreadWorld::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

}  // namespace lockstep::distributed::detail
