// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>

// Selects elements by indices along a dimension, from tensors of any dtype. Indices are of i64 or
// i32, count from 0, and may repeat.
//
// **Devices and streams.** Both tensors are on one device.
// **Backward.** An element's gradients are added in the order of the indices, so the same input
// gives the same bits. Derivatives of any order.
// **Threads and exceptions.** An index outside the dimension is an IndexError that names it, its
// position in row-major order and the number of elements: at this call, or on a device with
// asynchronous streams at the next synchronisation with the stream. A ShapeError, DtypeError or
// DeviceError names what does not match.
namespace lockstep {

// Selects the n slices of dimension `dim` that the indices [n] name, in their order.
//
// **Torch counterpart.** torch.index_select.
// **Example.** `index_select(x, 0, tensor<std::int64_t>({2, 0}))` are the third and the first row.
Tensor index_select(const Tensor& x, std::int64_t dim, const Tensor& index);

// For each position in `index`, which has as many dimensions as x, takes the element of x at that
// position, but with the index in place of the coordinate along `dim`. The result has the shape of
// `index`, which may be smaller than x in the other dimensions.
//
// parallel/scatter_gather.hpp has the gather that joins tensors of several devices.
//
// **Torch counterpart.** torch.gather.
// **Example.** `gather(log_probs, 1, unsqueeze(labels, 1))` has each row's value at its label.
Tensor gather(const Tensor& x, std::int64_t dim, const Tensor& index);

namespace detail {

enum class RowsOf : unsigned;  // tensor/row_kernels.hpp

// gather if `of` is RowsOf::gather, else index_select with an index of any shape, which replaces
// the dimension. The index is contiguous and of i64. Not recorded.
Tensor take(RowsOf of, const Tensor& x, std::size_t dim, const Tensor& index);

}  // namespace detail

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/index.ipp>
#endif
