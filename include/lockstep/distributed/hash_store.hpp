// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/store.hpp>
#include <lockstep/distributed/store_values.hpp>

#include <condition_variable>
#include <mutex>

namespace lockstep::distributed {

// A store for the threads of one process.
//
// **Torch counterpart.** torch.distributed.HashStore.
class HashStore final : public Store {
 public:
  using Store::Store;

  std::string name() const override { return "HashStore"; }

 private:
  void do_set(const std::string& key, const std::string& value, const detail::Deadline&) override {
    {
      const std::lock_guard lock(mutex_);
      values_.set(key, value);
    }
    changed_.notify_all();
  }
  std::string do_get(const std::string& key, const detail::Deadline& deadline) override {
    std::unique_lock lock(mutex_);
    await(lock, {&key, 1}, deadline);
    return *values_.find(key);
  }
  std::int64_t do_add(const std::string& key, std::int64_t amount,
                      const detail::Deadline&) override {
    std::unique_lock lock(mutex_);
    const std::int64_t total = values_.add(key, amount);
    lock.unlock();
    changed_.notify_all();
    return total;
  }
  void do_wait(std::span<const std::string> keys, const detail::Deadline& deadline) override {
    std::unique_lock lock(mutex_);
    await(lock, keys, deadline);
  }
  bool do_check(std::span<const std::string> keys, const detail::Deadline&) override {
    const std::lock_guard lock(mutex_);
    return values_.has_all(keys);
  }
  bool do_delete(const std::string& key, const detail::Deadline&) override {
    const std::lock_guard lock(mutex_);
    return values_.erase(key);
  }
  std::int64_t do_num_keys(const detail::Deadline&) override {
    const std::lock_guard lock(mutex_);
    return values_.size();
  }

  void await(std::unique_lock<std::mutex>& lock, std::span<const std::string> keys,
             const detail::Deadline& deadline) {
    if (!changed_.wait_until(lock, deadline.at(), [&] { return values_.has_all(keys); })) {
      fail_late(keys, deadline);
    }
  }

  std::mutex mutex_;  // guards values_
  std::condition_variable changed_;
  detail::StoreValues values_;
};

}  // namespace lockstep::distributed
