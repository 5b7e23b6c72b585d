// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/store/store.hpp>

#include <memory>
#include <optional>
#include <string>

namespace lockstep::distributed {

// A view of another store, which keeps each key there as "prefix/key".
//
// Its time limit is its own. It begins with the other store's, and what sets either of them later
// leaves the other as it is: of several views of one store, each waits as long as it was told to.
// `num_keys` counts those of the whole store, as torch's does.
//
// **Torch counterpart.** torch.distributed.PrefixStore, whose set_timeout sets the other store's
// time limit, and so that of all views of it.
// **Threads and exceptions.** As the other store's; a ValueError for a null one, and for a key that
// is too long together with the prefix.
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
