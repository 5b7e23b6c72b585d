// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

// Other shapes for the same elements in the same row-major order.
namespace lockstep {

// The tensor itself if its elements are in row-major order without gaps, else a copy in which they
// are.
//
// **Torch counterpart.** torch.Tensor.contiguous.
inline Tensor contiguous(const Tensor& x) { return x.contiguous(); }

// The elements in another shape. One size may be −1, and is then computed from the others.
//
// It is a view of the same memory if the strides allow that, else a copy.
//
// **Torch counterpart.** torch.reshape.
// **Threads and exceptions.** A ShapeError if the shape has another number of elements.
inline Tensor reshape(const Tensor& x, const Shape& shape) { return x.reshape(shape); }

// Joins the dimensions from `start_dim` to `end_dim`, both included, into one.
//
// **Torch counterpart.** torch.flatten.
inline Tensor flatten(const Tensor& x, std::int64_t start_dim = 0, std::int64_t end_dim = -1) {
  return x.flatten(start_dim, end_dim);
}

// Inserts a dimension of size 1 before dimension `dim`; −1 puts it last.
//
// **Torch counterpart.** torch.unsqueeze.
inline Tensor unsqueeze(const Tensor& x, std::int64_t dim) { return x.unsqueeze(dim); }

// Removes dimension `dim` if its size is 1; otherwise the shape stays.
//
// **Torch counterpart.** torch.squeeze(x, dim).
inline Tensor squeeze(const Tensor& x, std::int64_t dim) { return x.squeeze(dim); }

// Removes all dimensions of size 1.
//
// **Torch counterpart.** torch.squeeze(x).
inline Tensor squeeze(const Tensor& x) { return x.squeeze(); }

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/reshape.ipp>
#endif
