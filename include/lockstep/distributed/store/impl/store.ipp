// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/store/store.hpp>
#include <lockstep/distributed/store/store_values.hpp>
#include <lockstep/error.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace lockstep::distributed {

LOCKSTEP_INLINE Store::Store(std::chrono::milliseconds timeout) {
  (void)lockstep::detail::forked();  // from here on a child knows that it is one
  set_timeout(timeout);
}

LOCKSTEP_INLINE void Store::set_timeout(std::chrono::milliseconds timeout) {
  timeout_.store(detail::Deadline(timeout).timeout(), std::memory_order_relaxed);
}

LOCKSTEP_INLINE void Store::set(const std::string& key, const std::string& value) {
  lockstep::check<ValueError>(value.size() <= kMaxValue, "Store.set: the value of key '", key,
                              "' has ", value.size(), " bytes, ", kMaxValue, " is the most");
  check_and_answer({detail::StoreRequest::set, {key}, value}, timeout());
}

LOCKSTEP_INLINE std::string Store::get(const std::string& key, std::chrono::milliseconds timeout) {
  return check_and_answer({detail::StoreRequest::get, {key}}, timeout).value;
}

LOCKSTEP_INLINE std::int64_t Store::add(const std::string& key, std::int64_t amount) {
  return check_and_answer({detail::StoreRequest::add, {key}, {}, amount}, timeout()).number;
}

LOCKSTEP_INLINE void Store::wait(std::span<const std::string> keys,
                                 std::chrono::milliseconds timeout) {
  check_and_answer({detail::StoreRequest::wait, {keys.begin(), keys.end()}}, timeout);
}

LOCKSTEP_INLINE bool Store::check(std::span<const std::string> keys) {
  return check_and_answer({detail::StoreRequest::check, {keys.begin(), keys.end()}}, timeout())
             .number != 0;
}

LOCKSTEP_INLINE bool Store::delete_key(const std::string& key) {
  return check_and_answer({detail::StoreRequest::erase, {key}}, timeout()).number != 0;
}

LOCKSTEP_INLINE std::int64_t Store::num_keys() {
  return check_and_answer({detail::StoreRequest::count}, timeout()).number;
}

LOCKSTEP_INLINE detail::StoreAnswer Store::check_and_answer(const detail::StoreCall& call,
                                                            std::chrono::milliseconds timeout) {
  lockstep::detail::check_not_forked();  // it would share its parent's connections and locks
  for (const std::string& key : call.keys) check_key(key);
  const detail::Deadline deadline(timeout);
  if (auto answered = answer(call, deadline)) return *std::move(answered);
  constexpr std::size_t kListed = 3;
  std::string list;
  for (std::size_t i = 0; i < call.keys.size() && i < kListed; ++i) {
    list += (i == 0 ? "'" : ", '") + call.keys[i] + '\'';
  }
  if (call.keys.size() > kListed) {
    list += " and " + std::to_string(call.keys.size() - kListed) + " more";
  }
  lockstep::detail::fail<StoreError>(
      name(), ": waited for ", call.keys.size() == 1 ? "key " : "keys ", list, " for ",
      detail::Seconds{deadline.timeout()},
      ", but not all were set; the rank that sets them has failed, or not come that far");
}

LOCKSTEP_INLINE void Store::check_key(const std::string& key) {
  lockstep::check<ValueError>(key.size() <= kMaxKey, "Store: a key of ", key.size(), " bytes, ",
                              kMaxKey, " is the most");
}

}  // namespace lockstep::distributed
