// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/never_destroyed.hpp>
#include <lockstep/parallel/ddp/reducer_claims.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <mutex>
#include <set>
#include <vector>

namespace lockstep::detail {

// The parameters that all Reducers have claimed.
struct ClaimedParameters {
  std::mutex mutex;
  std::set<const TensorImpl*> all;
};

LOCKSTEP_INLINE ReducerClaims::ReducerClaims(const std::vector<NamedParameter>& parameters) {
  auto& claimed = never_destroyed<ClaimedParameters>();
  const std::lock_guard lock(claimed.mutex);
  std::set<const TensorImpl*> added;
  for (const auto& [name, tensor] : parameters) {
    const TensorImpl* const variable = tensor.impl().get();
    check<ModuleError>(!claimed.all.contains(variable), "DistributedDataParallel: parameter \"",
                       name, "\" belongs to another DistributedDataParallel already");
    added.insert(variable);
    mine_.emplace(variable, tensor);
  }
  claimed.all.merge(added);  // last, since it cannot run out of memory
}

LOCKSTEP_INLINE ReducerClaims::~ReducerClaims() {
  auto& claimed = never_destroyed<ClaimedParameters>();
  const std::lock_guard lock(claimed.mutex);
  for (const auto& [variable, tensor] : mine_) claimed.all.erase(variable);
}

}  // namespace lockstep::detail
