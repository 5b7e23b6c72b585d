// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/tensor/sparse.hpp>
#include <lockstep/tensor/sparse_sum.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <span>
#include <vector>

// What reduce_add adds up, and which of it is sparse.
namespace lockstep::comm::detail {

// What one sum is made of, in lists that somebody keeps.
using Summands = std::span<const Tensor>;

inline bool any_sparse(Summands summands) {
  return std::any_of(summands.begin(), summands.end(),
                     [](const Tensor& each) { return each.is_sparse(); });
}
inline bool any_sparse(const std::vector<Summands>& lists) {
  return std::any_of(lists.begin(), lists.end(), [](Summands each) { return any_sparse(each); });
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
