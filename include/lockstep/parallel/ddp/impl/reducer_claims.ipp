// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/parallel/ddp/reducer_claims.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <functional>
#include <mutex>
#include <unordered_set>
#include <vector>

namespace lockstep::detail {

// Never destroyed.
struct ReducerClaims::Table {
  std::mutex mutex;
  std::unordered_set<const TensorImpl*> claimed;

  static Table& instance() {
    static Table& table = *new Table;
    return table;
  }

  static bool before(const Tensor& a, const Tensor& b) {
    return std::less<>()(a.impl().get(), b.impl().get());
  }
};

LOCKSTEP_INLINE ReducerClaims::ReducerClaims(const std::vector<NamedParameter>& parameters)
    : ReducerClaims() {
  Table& table = Table::instance();
  const std::lock_guard lock(table.mutex);
  for (const auto& [name, tensor] : parameters) {
    check<ModuleError>(!table.claimed.contains(tensor.impl().get()),
                       "DistributedDataParallel: parameter \"", name,
                       "\" belongs to another DistributedDataParallel already");
  }
  mine_.reserve(parameters.size());
  for (const NamedParameter& parameter : parameters) {
    table.claimed.insert(parameter.tensor.impl().get());
    mine_.push_back(parameter.tensor);
  }
  std::sort(mine_.begin(), mine_.end(), Table::before);
}

LOCKSTEP_INLINE ReducerClaims::~ReducerClaims() {
  Table& table = Table::instance();
  const std::lock_guard lock(table.mutex);
  for (const Tensor& tensor : mine_) table.claimed.erase(tensor.impl().get());
}

LOCKSTEP_INLINE bool ReducerClaims::has(const Tensor& parameter) const {
  return std::binary_search(mine_.begin(), mine_.end(), parameter, Table::before);
}

}  // namespace lockstep::detail
