// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <unordered_map>
#include <vector>

namespace lockstep::detail {

// Claims parameters for one Reducer: two that average one gradient, each in a buffer of its own,
// would write over each other.
//
// Threads: any; the set of all claims is guarded by its mutex.
class ReducerClaims : NonCopyable {
 public:
  // A ModuleError that names the parameter if one is held already.
  explicit ReducerClaims(const std::vector<NamedParameter>& parameters);
  ~ReducerClaims();

  bool has(const Tensor& parameter) const { return mine_.contains(parameter.impl().get()); }

 private:
  std::unordered_map<const TensorImpl*, Tensor> mine_;  // alive as long as they are claimed
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/ddp/impl/reducer_claims.ipp>
#endif
