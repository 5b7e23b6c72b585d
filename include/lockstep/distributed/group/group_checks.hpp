// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/reduce_op.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <vector>

// Checks of a collective's arguments that a rank makes without the others.
namespace lockstep::distributed::detail {

// Throws unless each element of the tensor has memory of its own.
void check_written(const char* operation, const Tensor& tensor);

// Throws for a sparse tensor.
void check_dense(const char* operation, const Tensor& tensor);

void check_reducible(const char* operation, const Tensor& tensor, ReduceOp op);

// Throws unless `list` has one tensor for each rank, each of the shape, dtype and device of `part`.
void check_list(const char* operation, const char* what, const std::vector<Tensor>& list,
                const Tensor& part, int size, bool written);

// Throws unless `whole` has as many elements as `size` parts, and the dtype and device of `part`.
void check_whole(const char* operation, const char* what, const Tensor& whole,
                 const char* part_name, const Tensor& part, int size);

void check_members(const std::vector<int>& members, int size);

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/group/impl/group_checks.ipp>
#endif
