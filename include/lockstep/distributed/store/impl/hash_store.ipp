// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/store/hash_store.hpp>
#include <lockstep/distributed/store/store_values.hpp>

#include <mutex>
#include <optional>

namespace lockstep::distributed {

LOCKSTEP_INLINE std::optional<detail::StoreAnswer> HashStore::answer(
    const detail::StoreCall& call, const detail::Deadline& deadline) {
  std::unique_lock lock(mutex_);
  if (call.waits() &&
      !changed_.wait_until(lock, deadline.at(), [&] { return values_.has_all(call.keys); })) {
    return std::nullopt;
  }
  detail::StoreAnswer result = values_.answer(call);
  lock.unlock();
  if (call.changes()) changed_.notify_all();
  return result;
}

}  // namespace lockstep::distributed
