// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/store/store.hpp>

#include <memory>
#include <vector>

namespace lockstep::distributed {

// A view of another store, which keeps each key there as "prefix/key".
//
// `num_keys` counts those of the whole store, as torch's does.
//
// **Torch counterpart.** torch.distributed.PrefixStore.
// **Threads and exceptions.** As the other store's; a ValueError for a null one.
class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> store);

  std::string name() const override { return store_->name() + " below '" + prefix_ + '\''; }

 private:
  // `get` and `wait` give the other store their whole time limit again: nothing has used it up yet.
  // All other calls have that store's own.
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
  std::int64_t do_num_keys(const detail::Deadline&) override { return store_->num_keys(); }

  std::string full(const std::string& key) const { return prefix_ + '/' + key; }
  std::vector<std::string> full(std::span<const std::string> keys) const;

  std::string prefix_;
  std::shared_ptr<Store> store_;
};

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/store/impl/prefix_store.ipp>
#endif
