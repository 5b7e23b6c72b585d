// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>

// Elements that indices along a dimension name, of tensors of any dtype; the indices are of i64 or
// i32, from 0 on, and may name an element several times.
//
// **Devices and streams.** Both tensors on one device.
// **Backward.** What comes for an element is added up in the order of the indices, so that the same
// input gives the same bits. Linear, with derivatives of any order.
// **Threads and exceptions.** An index outside the dimension is an IndexError that names it, its
// position in row-major order and the number of elements: at this call, or where the device's
// stream is asynchronous at the next synchronisation with it. A ShapeError, DtypeError or
// DeviceError names what does not fit.
namespace lockstep {

// The slices of dimension `dim` that the indices, a tensor [n], name one after the other: the
// result has n of them.
//
// **Torch counterpart.** torch.index_select.
// **Example.** `index_select(x, 0, tensor<std::int64_t>({2, 0}))` are the third and the first row.
Tensor index_select(const Tensor& x, std::int64_t dim, const Tensor& index);

// For each index, which has a place in as many dimensions as x has, the element of x at that place,
// but at the index along `dim`: the result is of the shape of `index`. In the other dimensions
// `index` may be smaller than x.
//
// (The function that joins tensors of several devices is parallel/scatter_gather.hpp's.)
//
// **Torch counterpart.** torch.gather.
// **Example.** `gather(log_probs, 1, unsqueeze(labels, 1))` has the one of each row's label.
Tensor gather(const Tensor& x, std::int64_t dim, const Tensor& index);

namespace detail {

enum class RowsOf : unsigned;  // tensor/row_kernels.hpp

// gather, if `of` says so, else index_select: for a contiguous index of i64 and of any shape, which
// takes the place of the dimension. Not recorded.
Tensor take(RowsOf of, const Tensor& x, std::size_t dim, const Tensor& index);

}  // namespace detail

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/index.ipp>
#endif
