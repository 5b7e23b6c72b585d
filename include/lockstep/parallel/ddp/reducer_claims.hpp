// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <functional>
#include <mutex>
#include <unordered_set>
#include <vector>

namespace lockstep::detail {

// Claims parameters for one Reducer: two that average one gradient, each in a buffer of its own,
// would write over each other.
//
// Threads: any; the set of all claims is guarded by its mutex.
class ReducerClaims : NonCopyable {
 public:
  // A ModuleError that names the parameter if one is held already.
  explicit ReducerClaims(const std::vector<NamedParameter>& parameters) : ReducerClaims() {
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
    std::sort(mine_.begin(), mine_.end(), before);
  }
  ~ReducerClaims() {
    Table& table = Table::instance();
    const std::lock_guard lock(table.mutex);
    for (const Tensor& tensor : mine_) table.claimed.erase(tensor.impl().get());
  }

  bool has(const Tensor& parameter) const {
    return std::binary_search(mine_.begin(), mine_.end(), parameter, before);
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

  // Nothing yet: where the other constructor throws, the destructor ends what has been claimed.
  ReducerClaims() = default;

  static bool before(const Tensor& a, const Tensor& b) {
    return std::less<>()(a.impl().get(), b.impl().get());
  }

  std::vector<Tensor> mine_;  // alive as long as they are claimed, in the order of before()
};

}  // namespace lockstep::detail
