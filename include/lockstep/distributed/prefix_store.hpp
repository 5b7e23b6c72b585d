// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/store.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace lockstep::distributed {

// A part of another store: its keys stand there as "prefix/key".
//
// `num_keys` counts those of the whole store, as torch's does.
//
// **Torch counterpart.** torch.distributed.PrefixStore.
class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> store)
      : Store(store ? store->timeout() : kDefaultTimeout),
        prefix_(std::move(prefix)),
        store_(std::move(store)) {
    lockstep::check<ValueError>(store_ != nullptr, "PrefixStore: there is no store");
  }

  std::string name() const override { return store_->name() + " below '" + prefix_ + '\''; }

 private:
  // The other store takes the same time limit. What is left of it cannot be less: nothing has
  // happened since.
  void do_set(const std::string& key, const std::string& value, const detail::Deadline&) override {
    store_->set(full(key), value);
  }
  std::string do_get(const std::string& key, const detail::Deadline& deadline) override {
    return store_->get(full(key), deadline.timeout());
  }
  std::int64_t do_add(const std::string& key, std::int64_t amount,
                      const detail::Deadline&) override {
    return store_->add(full(key), amount);
  }
  void do_wait(std::span<const std::string> keys, const detail::Deadline& deadline) override {
    store_->wait(full(keys), deadline.timeout());
  }
  bool do_check(std::span<const std::string> keys, const detail::Deadline&) override {
    return store_->check(full(keys));
  }
  bool do_delete(const std::string& key, const detail::Deadline&) override {
    return store_->delete_key(full(key));
  }
  std::int64_t do_num_keys(const detail::Deadline&) override { return store_->num_keys(); }

  std::string full(const std::string& key) const { return prefix_ + '/' + key; }
  std::vector<std::string> full(std::span<const std::string> keys) const {
    std::vector<std::string> all;
    for (const std::string& key : keys) all.push_back(full(key));
    return all;
  }

  std::string prefix_;
  std::shared_ptr<Store> store_;
};

}  // namespace lockstep::distributed
