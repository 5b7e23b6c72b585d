// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/reduce_op.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <vector>

// What one rank alone can see to be wrong with its arguments of a collective.
namespace lockstep::distributed::detail {

// Throws unless each element of the tensor has memory of its own.
void check_written(const char* operation, const Tensor& tensor);

// Throws for a sparse tensor.
void check_dense(const char* operation, const Tensor& tensor);

void check_reducible(const char* operation, const Tensor& tensor, ReduceOp op);

// A list of one tensor a rank, each like `part`.
void check_list(const char* operation, const char* what, const std::vector<Tensor>& list,
                const Tensor& part, int size, bool written);

// One tensor that has the parts of all ranks one after the other.
void check_whole(const char* operation, const char* what, const Tensor& whole,
                 const char* part_name, const Tensor& part, int size);

void check_members(const std::vector<int>& members, int size);

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/group_checks.ipp>
#endif
