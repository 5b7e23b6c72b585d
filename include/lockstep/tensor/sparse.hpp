// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

// Sparse tensors: gradients of a large table of which few rows are used.
//
// **Torch counterpart.** Tensors of layout torch.sparse_coo with one sparse dimension, of f32 or
// f64, as nn::Embedding with `sparse` needs them. They are accepted by a leaf's `grad` and its
// accumulation, DataParallel, DistributedDataParallel, optim::SGD, optim::SparseAdam and
// optim::clip_grad_norm_. All other operations throw an error that says how to get a dense tensor.
namespace lockstep {

// A sparse tensor of shape `size`. Row r is the sum of all values[i] whose indices[0][i] is r, and
// zero if there are none. The tensor copies both arguments.
//
// **Torch counterpart.** torch.sparse_coo_tensor, with one sparse dimension.
// **Devices and streams.** The host waits for the indices and checks them.
// **Backward.** None: an AutogradError for values that require grad.
// **Threads and exceptions.** A DtypeError unless the indices are of i64 and the values of f32 or
// f64, a DeviceError unless they are on one device, a ShapeError that names what does not fit, an
// IndexError for a row outside `size`.
// **Example.** `sparse_coo_tensor(from_values<std::int64_t>({2, 0}, {1, 2}), ones({2, 3}), {4, 3})`
Tensor sparse_coo_tensor(const Tensor& indices, const Tensor& values, const Shape& size);

// Declares that the gradients of this leaf will be sparse, or not. DistributedDataParallel must
// know on construction; nn::Embedding with `sparse` declares it for its weight. The mark belongs to
// the variable, not its data: a module's to() keeps it, and a new Parameter on the same data does
// not have it.
//
// **Torch counterpart.** The expect_sparse_gradient of DistributedDataParallel's reducer, which
// goes by the module's type.
// **Threads and exceptions.** A ValueError for an undefined tensor, a ShapeError for one without
// dimensions.
void expect_sparse_gradient(const Tensor& leaf, bool expected = true);
// True if that was declared; false for an undefined tensor.
inline bool expects_sparse_gradient(const Tensor& leaf) {
  return leaf.defined() && leaf.impl()->sparse_gradient;
}

}  // namespace lockstep

namespace lockstep::detail {

// The parts of a sparse tensor. A dense one is a ValueError that names `member`.
const SparseImpl& sparse_of(const Tensor& tensor, const char* member);

// The number of elements in a row of a tensor of this shape.
std::size_t row_width(const Shape& shape);

// The shape of `count` rows of a tensor of this shape.
Shape shape_of_rows(Shape shape, std::int64_t count);

// A sparse tensor that shares `indices` and `values`: contiguous tensors of n numbers and of shape
// [n, shape[1], …].
Tensor make_sparse(const Tensor& indices, Tensor values, const Shape& shape, bool coalesced);

// A sparse tensor that lists no row.
Tensor empty_sparse(const Shape& shape, const TensorOptions& options);

// The numbers of a tensor of i64. Waits for the device.
std::vector<std::int64_t> numbers_of(const Tensor& tensor);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/tensor/impl/sparse.ipp>
#endif
