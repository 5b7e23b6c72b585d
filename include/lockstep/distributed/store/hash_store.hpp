// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/store/store.hpp>
#include <lockstep/distributed/store/store_values.hpp>

#include <condition_variable>
#include <mutex>

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
  LOCKSTEP_INLINE void do_set(const std::string& key, const std::string& value,
                              const detail::Deadline&) override;
  LOCKSTEP_INLINE std::string do_get(const std::string& key,
                                     const detail::Deadline& deadline) override;
  LOCKSTEP_INLINE std::int64_t do_add(const std::string& key, std::int64_t amount,
                                      const detail::Deadline&) override;
  LOCKSTEP_INLINE void do_wait(std::span<const std::string> keys,
                               const detail::Deadline& deadline) override;
  LOCKSTEP_INLINE bool do_check(std::span<const std::string> keys,
                                const detail::Deadline&) override;
  LOCKSTEP_INLINE bool do_delete(const std::string& key, const detail::Deadline&) override;
  LOCKSTEP_INLINE std::int64_t do_num_keys(const detail::Deadline&) override;

  void await(std::unique_lock<std::mutex>& lock, std::span<const std::string> keys,
             const detail::Deadline& deadline);

  std::mutex mutex_;  // guards values_
  std::condition_variable changed_;
  detail::StoreValues values_;
};

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/store/impl/hash_store.ipp>
#endif
