// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/kept_memory.hpp>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE void keep_for_ever(std::shared_ptr<const void> owner) {
  // Never destroyed.
  struct Kept {
    std::mutex mutex;
    std::vector<std::shared_ptr<const void>> owners;
  };
  static Kept& kept = *new Kept;
  const std::lock_guard lock(kept.mutex);
  kept.owners.push_back(std::move(owner));
}

}  // namespace lockstep::distributed::detail
