// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/store/store.hpp>
#include <lockstep/error.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep::distributed {

LOCKSTEP_INLINE void Store::set_timeout(std::chrono::milliseconds timeout) {
  timeout_.store(detail::Deadline(timeout).timeout(), std::memory_order_relaxed);
}

LOCKSTEP_INLINE void Store::set(const std::string& key, const std::string& value) {
  check_key(key);
  lockstep::check<ValueError>(value.size() <= kMaxValue, "Store.set: the value of key '", key,
                              "' has ", value.size(), " bytes, ", kMaxValue, " is the most");
  do_set(key, value, deadline());
}

LOCKSTEP_INLINE std::string Store::get(const std::string& key, std::chrono::milliseconds timeout) {
  check_key(key);
  return do_get(key, detail::Deadline(timeout));
}

LOCKSTEP_INLINE std::int64_t Store::add(const std::string& key, std::int64_t amount) {
  check_key(key);
  return do_add(key, amount, deadline());
}

LOCKSTEP_INLINE void Store::wait(std::span<const std::string> keys,
                                 std::chrono::milliseconds timeout) {
  for (const std::string& key : keys) check_key(key);
  do_wait(keys, detail::Deadline(timeout));
}

LOCKSTEP_INLINE bool Store::check(std::span<const std::string> keys) {
  for (const std::string& key : keys) check_key(key);
  return do_check(keys, deadline());
}

LOCKSTEP_INLINE bool Store::delete_key(const std::string& key) {
  check_key(key);
  return do_delete(key, deadline());
}

LOCKSTEP_INLINE void Store::fail_late(std::span<const std::string> keys,
                                      const detail::Deadline& deadline) const {
  constexpr std::size_t kListed = 3;
  std::string list;
  for (std::size_t i = 0; i < keys.size() && i < kListed; ++i) {
    list += (i == 0 ? "'" : ", '") + keys[i] + '\'';
  }
  if (keys.size() > kListed) {
    list += " and " + std::to_string(keys.size() - kListed) + " more";
  }
  lockstep::detail::fail<StoreError>(
      name(), ": waited for ", keys.size() == 1 ? "key " : "keys ", list, " for ",
      detail::Seconds{deadline.timeout()},
      ", but not all were set; the rank that sets them has failed, or not come that far");
}

LOCKSTEP_INLINE void Store::check_key(const std::string& key) {
  lockstep::check<ValueError>(key.size() <= kMaxKey, "Store: a key of ", key.size(), " bytes, ",
                              kMaxKey, " is the most");
}

}  // namespace lockstep::distributed
