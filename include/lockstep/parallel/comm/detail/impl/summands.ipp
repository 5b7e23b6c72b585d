// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/parallel/comm/detail/summands.hpp>
#include <lockstep/tensor/sparse.hpp>
#include <lockstep/tensor/sparse_sum.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <vector>

namespace lockstep::comm::detail {

LOCKSTEP_INLINE bool any_sparse(Summands summands) {
  return std::any_of(summands.begin(), summands.end(),
                     [](const Tensor& each) { return each.is_sparse(); });
}

LOCKSTEP_INLINE bool densify_unless_all_sparse(std::vector<Tensor>& summands) {
  const bool all = std::all_of(summands.begin(), summands.end(),
                               [](const Tensor& each) { return each.is_sparse(); });
  if (!all) {
    for (Tensor& each : summands) each = each.to_dense();
  }
  return all;
}

}  // namespace lockstep::comm::detail
