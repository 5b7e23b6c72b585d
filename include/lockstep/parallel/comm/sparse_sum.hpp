// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/tensor/sparse.hpp>
#include <lockstep/tensor/sparse_sum.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <vector>

// Which summands of reduce_add are sparse.
namespace lockstep::comm::detail {

inline bool any_sparse(const std::vector<Tensor>& summands) {
  return std::any_of(summands.begin(), summands.end(),
                     [](const Tensor& each) { return each.is_sparse(); });
}
inline bool any_sparse(const std::vector<std::vector<Tensor>>& lists) {
  return std::any_of(lists.begin(), lists.end(), [](const auto& each) { return any_sparse(each); });
}

// Whether all of them are. If only some are, those become dense.
inline bool are_sparse(std::vector<Tensor>& summands) {
  const bool all = std::all_of(summands.begin(), summands.end(),
                               [](const Tensor& each) { return each.is_sparse(); });
  if (!all) {
    for (Tensor& each : summands) each = each.to_dense();
  }
  return all;
}

}  // namespace lockstep::comm::detail
