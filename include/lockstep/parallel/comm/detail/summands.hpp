// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <span>
#include <vector>

// The tensors that reduce_add adds up.
namespace lockstep::comm::detail {

// The tensors of one sum. The caller keeps the list that this refers to.
using Summands = std::span<const Tensor>;

bool any_sparse(Summands summands);
inline bool any_sparse(const std::vector<Summands>& lists) {
  return std::any_of(lists.begin(), lists.end(), [](Summands each) { return any_sparse(each); });
}

// Returns true if all are sparse; otherwise makes all of them dense and returns false.
bool densify_unless_all_sparse(std::vector<Tensor>& summands);

}  // namespace lockstep::comm::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/comm/detail/impl/summands.ipp>
#endif
