// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/store/store.hpp>

#include <memory>
#include <optional>
#include <string>

namespace lockstep::distributed {

// A view of another store, in which each key has the name "prefix/key".
//
// It has a time limit of its own, which begins as the other store's: several views of one store may
// wait for different times. `num_keys` counts the keys of the whole store, as torch's does.
//
// **Torch counterpart.** torch.distributed.PrefixStore, whose set_timeout sets the time limit of
// the other store and all its views.
// **Threads and exceptions.** As the other store; a ValueError if that is null, and for a key that
// is too long with the prefix.
class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> store);

  std::string name() const override { return store_->name() + " below '" + prefix_ + '\''; }

 private:
  LOCKSTEP_INLINE std::optional<detail::StoreAnswer> answer(
      const detail::StoreCall& call, const detail::Deadline& deadline) override;

  std::string prefix_;
  std::shared_ptr<Store> store_;
};

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/store/impl/prefix_store.ipp>
#endif
