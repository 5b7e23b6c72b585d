// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <vector>

// Sums, copies and moves of sparse tensors. Nothing here is recorded for backward.
namespace lockstep::detail {

// `count` rows of a contiguous tensor from `first` on, as a view.
Tensor rows_of(const Tensor& tensor, std::size_t first, std::size_t count);

std::size_t rows_listed(const Tensor& sparse);

// The sum of sparse tensors of one shape and dtype, on `device`: a new tensor that lists the rows
// of all of them, in their order.
Tensor concatenated(const std::vector<Tensor>& parts, Device device);

// The sum of two sparse tensors of one shape, dtype and device. It is coalesced if it would
// otherwise list more rows than the tensor has.
Tensor sum_sparse(const Tensor& a, const Tensor& b);

// Whether no other handle refers to the memory of this sparse tensor, so that it may be taken over.
bool is_sole_owner_of_sparse(const Tensor& tensor);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/tensor/impl/sparse_sum.ipp>
#endif
