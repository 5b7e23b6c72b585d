// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <unordered_map>
#include <vector>

namespace lockstep::detail {

// Claims parameters for one Reducer. Two Reducers that average one gradient would overwrite each
// other's.
//
// Threads: any; a mutex guards the set of all claims.
class ReducerClaims : NonCopyable {
 public:
  // A ModuleError that names the parameter if one is claimed already.
  explicit ReducerClaims(const std::vector<NamedParameter>& parameters);
  ~ReducerClaims();

  bool has(const Tensor& parameter) const { return mine_.contains(parameter.impl().get()); }

 private:
  std::unordered_map<const TensorImpl*, Tensor> mine_;  // kept alive while claimed
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/ddp/impl/reducer_claims.ipp>
#endif
