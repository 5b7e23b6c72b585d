// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/store/prefix_store.hpp>
#include <lockstep/distributed/store/store.hpp>
#include <lockstep/error.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace lockstep::distributed {

LOCKSTEP_INLINE PrefixStore::PrefixStore(std::string prefix, std::shared_ptr<Store> store)
    : Store(store ? store->timeout() : kDefaultTimeout),
      prefix_(std::move(prefix)),
      store_(std::move(store)) {
  lockstep::check<ValueError>(store_ != nullptr, "PrefixStore: there is no store");
}

LOCKSTEP_INLINE std::optional<detail::StoreAnswer> PrefixStore::answer(
    const detail::StoreCall& call, const detail::Deadline& deadline) {
  detail::StoreCall whole = call;
  for (std::string& key : whole.keys) {
    key = prefix_ + '/' + key;
    check_key(key);
  }
  return store_->answer(whole, deadline);
}

}  // namespace lockstep::distributed
