// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/store/prefix_store.hpp>
#include <lockstep/distributed/store/store.hpp>
#include <lockstep/error.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace lockstep::distributed {

LOCKSTEP_INLINE PrefixStore::PrefixStore(std::string prefix, std::shared_ptr<Store> store)
    : Store(store ? store->timeout() : kDefaultTimeout),
      prefix_(std::move(prefix)),
      store_(std::move(store)) {
  lockstep::check<ValueError>(store_ != nullptr, "PrefixStore: there is no store");
}

LOCKSTEP_INLINE void PrefixStore::do_set(const std::string& key, const std::string& value,
                                         const detail::Deadline& deadline) {
  store_->do_set(full(key), value, deadline);
}

LOCKSTEP_INLINE std::string PrefixStore::do_get(const std::string& key,
                                                const detail::Deadline& deadline) {
  return store_->do_get(full(key), deadline);
}

LOCKSTEP_INLINE std::int64_t PrefixStore::do_add(const std::string& key, std::int64_t amount,
                                                 const detail::Deadline& deadline) {
  return store_->do_add(full(key), amount, deadline);
}

LOCKSTEP_INLINE void PrefixStore::do_wait(std::span<const std::string> keys,
                                          const detail::Deadline& deadline) {
  store_->do_wait(full(keys), deadline);
}

LOCKSTEP_INLINE bool PrefixStore::do_check(std::span<const std::string> keys,
                                           const detail::Deadline& deadline) {
  return store_->do_check(full(keys), deadline);
}

LOCKSTEP_INLINE bool PrefixStore::do_delete(const std::string& key,
                                            const detail::Deadline& deadline) {
  return store_->do_delete(full(key), deadline);
}

LOCKSTEP_INLINE std::int64_t PrefixStore::do_num_keys(const detail::Deadline& deadline) {
  return store_->do_num_keys(deadline);
}

LOCKSTEP_INLINE std::string PrefixStore::full(const std::string& key) const {
  std::string whole = prefix_ + '/' + key;
  check_key(whole);
  return whole;
}

LOCKSTEP_INLINE std::vector<std::string> PrefixStore::full(
    std::span<const std::string> keys) const {
  std::vector<std::string> all;
  for (const std::string& key : keys) all.push_back(full(key));
  return all;
}

}  // namespace lockstep::distributed
