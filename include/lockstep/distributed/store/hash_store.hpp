// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/store/store.hpp>
#include <lockstep/distributed/store/store_values.hpp>

#include <condition_variable>
#include <mutex>
#include <optional>

namespace lockstep::distributed {

// A store for the threads of one process.
//
// **Torch counterpart.** torch.distributed.HashStore.
// **Threads and exceptions.** As Store.
class HashStore final : public Store {
 public:
  using Store::Store;

  std::string name() const override { return "HashStore"; }

 private:
  std::optional<detail::StoreAnswer> answer(const detail::StoreCall& call,
                                            const detail::Deadline& deadline) override {
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

  std::mutex mutex_;  // guards values_
  std::condition_variable changed_;
  detail::StoreValues values_;
};

}  // namespace lockstep::distributed
