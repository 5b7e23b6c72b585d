// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <span>
#include <vector>

// What reduce_add adds up, and which of it is sparse.
namespace lockstep::comm::detail {

// What one sum is made of, in lists that somebody keeps.
using Summands = std::span<const Tensor>;

bool any_sparse(Summands summands);
bool any_sparse(const std::vector<Summands>& lists);

// Whether all of them are. If only some are, those become dense.
bool are_sparse(std::vector<Tensor>& summands);

}  // namespace lockstep::comm::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/comm/sparse_sum.ipp>
#endif
