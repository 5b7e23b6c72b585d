// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
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
  LOCKSTEP_INLINE std::optional<detail::StoreAnswer> answer(
      const detail::StoreCall& call, const detail::Deadline& deadline) override;

  std::mutex mutex_;  // guards values_
  std::condition_variable changed_;
  detail::StoreValues values_;
};

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/store/impl/hash_store.ipp>
#endif
