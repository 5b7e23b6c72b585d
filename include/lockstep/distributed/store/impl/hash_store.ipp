// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/store/hash_store.hpp>

#include <mutex>

namespace lockstep::distributed {

LOCKSTEP_INLINE void HashStore::do_set(const std::string& key, const std::string& value,
                                       const detail::Deadline&) {
  {
    const std::lock_guard lock(mutex_);
    values_.set(key, value);
  }
  changed_.notify_all();
}

LOCKSTEP_INLINE std::string HashStore::do_get(const std::string& key,
                                              const detail::Deadline& deadline) {
  std::unique_lock lock(mutex_);
  await(lock, {&key, 1}, deadline);
  return *values_.find(key);
}

LOCKSTEP_INLINE std::int64_t HashStore::do_add(const std::string& key, std::int64_t amount,
                                               const detail::Deadline&) {
  std::unique_lock lock(mutex_);
  const std::int64_t total = values_.add(key, amount);
  lock.unlock();
  changed_.notify_all();
  return total;
}

LOCKSTEP_INLINE void HashStore::do_wait(std::span<const std::string> keys,
                                        const detail::Deadline& deadline) {
  std::unique_lock lock(mutex_);
  await(lock, keys, deadline);
}

LOCKSTEP_INLINE bool HashStore::do_check(std::span<const std::string> keys,
                                         const detail::Deadline&) {
  const std::lock_guard lock(mutex_);
  return values_.has_all(keys);
}

LOCKSTEP_INLINE bool HashStore::do_delete(const std::string& key, const detail::Deadline&) {
  const std::lock_guard lock(mutex_);
  return values_.erase(key);
}

LOCKSTEP_INLINE std::int64_t HashStore::do_num_keys(const detail::Deadline&) {
  const std::lock_guard lock(mutex_);
  return values_.size();
}

LOCKSTEP_INLINE void HashStore::await(std::unique_lock<std::mutex>& lock,
                                      std::span<const std::string> keys,
                                      const detail::Deadline& deadline) {
  if (!changed_.wait_until(lock, deadline.at(), [&] { return values_.has_all(keys); })) {
    fail_late(keys, deadline);
  }
}

}  // namespace lockstep::distributed
