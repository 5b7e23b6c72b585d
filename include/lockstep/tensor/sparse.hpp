// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

// Sparse tensors: gradients of a large table of which few rows were used.
//
// **Torch counterpart.** Tensors of layout torch.sparse_coo with one sparse dimension, of f32 or
// f64: what nn::Embedding with `sparse` needs. Operations do not take them; each says so and names
// the way out. Those that do: a leaf's `grad` and its accumulation, DataParallel,
// DistributedDataParallel, optim::SGD, optim::SparseAdam and optim::clip_grad_norm_.
namespace lockstep {

// A sparse tensor of shape `size` whose row indices[0][i] is values[i], or the sum of all such; the
// other rows are zero. It has copies of both.
//
// **Torch counterpart.** torch.sparse_coo_tensor, with one sparse dimension.
// **Devices and streams.** Waits for the indices, to check them.
// **Backward.** None: an AutogradError for values that require grad.
// **Threads and exceptions.** A DtypeError unless the indices are of i64 and the values of f32 or
// f64, a DeviceError unless they are on one device, a ShapeError that names what does not fit, an
// IndexError for a row outside `size`.
// **Example.** `sparse_coo_tensor(from_values<std::int64_t>({2, 0}, {1, 2}), ones({2, 3}), {4, 3})`
Tensor sparse_coo_tensor(const Tensor& indices, const Tensor& values, const Shape& size);

// Says that backward brings this leaf sparse gradients, for those who have to know before:
// DistributedDataParallel, on construction. nn::Embedding does so where it is `sparse`. It belongs
// to the variable, not to its data: to() keeps it, a new Parameter on the same data has it not.
//
// **Torch counterpart.** The expect_sparse_gradient of DistributedDataParallel's reducer, which
// knows it from the type of the module.
void expect_sparse_gradient(const Tensor& leaf, bool expected = true);
bool expects_sparse_gradient(const Tensor& leaf);

}  // namespace lockstep

namespace lockstep::detail {

// What a sparse tensor consists of. For any other a ValueError that names `member`.
const SparseImpl& sparse_of(const Tensor& tensor, const char* member);

// The elements of one row of a tensor of this shape.
std::size_t row_width(const Shape& shape);

// The shape of `count` rows of such a tensor.
Shape shape_of_rows(Shape shape, std::size_t count);

// A sparse tensor of these very tensors, which are contiguous and fit each other: [1, n] and
// [n, shape[1], …].
Tensor make_sparse(Tensor indices, Tensor values, const Shape& shape, bool coalesced);

// One that lists no row.
Tensor empty_sparse(const Shape& shape, const TensorOptions& options);

// The numbers of a tensor of i64. Waits for the device.
std::vector<std::int64_t> numbers_of(const Tensor& tensor);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/tensor/sparse.ipp>
#endif
