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
                                         const detail::Deadline&) {
  store_->set(full(key), value);
}

LOCKSTEP_INLINE std::string PrefixStore::do_get(const std::string& key,
                                                const detail::Deadline& deadline) {
  return store_->get(full(key), deadline.timeout());
}

LOCKSTEP_INLINE std::int64_t PrefixStore::do_add(const std::string& key, std::int64_t amount,
                                                 const detail::Deadline&) {
  return store_->add(full(key), amount);
}

LOCKSTEP_INLINE void PrefixStore::do_wait(std::span<const std::string> keys,
                                          const detail::Deadline& deadline) {
  store_->wait(full(keys), deadline.timeout());
}

LOCKSTEP_INLINE bool PrefixStore::do_check(std::span<const std::string> keys,
                                           const detail::Deadline&) {
  return store_->check(full(keys));
}

LOCKSTEP_INLINE bool PrefixStore::do_delete(const std::string& key, const detail::Deadline&) {
  return store_->delete_key(full(key));
}

LOCKSTEP_INLINE std::vector<std::string> PrefixStore::full(
    std::span<const std::string> keys) const {
  std::vector<std::string> all;
  for (const std::string& key : keys) all.push_back(full(key));
  return all;
}

}  // namespace lockstep::distributed
