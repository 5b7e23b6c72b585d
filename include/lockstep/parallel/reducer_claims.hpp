// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <mutex>
#include <unordered_set>
#include <vector>

namespace lockstep::detail {

// Holds parameters that nobody else may reduce meanwhile: two that average one gradient, each in a
// buffer of its own, would write over each other.
//
// Threads: any; the set of all claims is guarded by its mutex.
class ReducerClaims {
 public:
  // A ModuleError that names the parameter if one is held already.
  explicit ReducerClaims(const std::vector<NamedParameter>& parameters) {
    Table& table = Table::instance();
    const std::lock_guard lock(table.mutex);
    for (const auto& [name, tensor] : parameters) {
      check<ModuleError>(!table.claimed.contains(tensor.impl().get()),
                         "DistributedDataParallel: parameter \"", name,
                         "\" belongs to another DistributedDataParallel already");
    }
    for (const NamedParameter& parameter : parameters) {
      mine_.push_back(parameter.tensor);
      table.claimed.insert(parameter.tensor.impl().get());
    }
  }
  ReducerClaims(const ReducerClaims&) = delete;
  ReducerClaims& operator=(const ReducerClaims&) = delete;
  ~ReducerClaims() {
    Table& table = Table::instance();
    const std::lock_guard lock(table.mutex);
    for (const Tensor& tensor : mine_) table.claimed.erase(tensor.impl().get());
  }

 private:
  // Never destroyed.
  struct Table {
    std::mutex mutex;
    std::unordered_set<const TensorImpl*> claimed;

    static Table& instance() {
      static Table& table = *new Table;
      return table;
    }
  };

  std::vector<Tensor> mine_;  // alive as long as they are claimed
};

}  // namespace lockstep::detail
