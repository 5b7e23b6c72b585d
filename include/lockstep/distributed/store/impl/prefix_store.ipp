// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/store/prefix_store.hpp>
#include <lockstep/distributed/store/store.hpp>
#include <lockstep/error.hpp>

#include <memory>
#include <string>
#include <utility>

namespace lockstep::distributed {

LOCKSTEP_INLINE PrefixStore::PrefixStore(std::string prefix, std::shared_ptr<Store> store)
    : Store(store ? store->timeout() : kDefaultTimeout),
      prefix_(std::move(prefix)),
      store_(std::move(store)) {
  lockstep::check<ValueError>(store_ != nullptr, "PrefixStore: there is no store");
}

LOCKSTEP_INLINE detail::StoreAnswer PrefixStore::answer(detail::StoreCall call,
                                                        const detail::Deadline& deadline) {
  for (std::string& key : call.keys) {
    key = prefix_ + '/' + key;
    check_key(key);
  }
  return store_->answer(std::move(call), deadline);
}

}  // namespace lockstep::distributed
