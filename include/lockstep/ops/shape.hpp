// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/tensor/memory_format.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>

// Views of the same memory with other dimensions, or of a part of it. A change in a view is a
// change in the tensor, and both have one version.
namespace lockstep {

namespace detail {

// The part [start, start + length) of a dimension. Recorded.
Tensor narrow_at(const Tensor& x, std::size_t dim, std::int64_t start, std::int64_t length);

}  // namespace detail

// Reorders the dimensions: dimension i of the result is dimension `dims[i]` of x.
//
// **Torch counterpart.** torch.permute.
inline Tensor permute(const Tensor& x, const Shape& dims) { return x.permute(dims); }

// x in a memory format: x itself if it has that format, else a copy. Scatter, gather and gradients
// keep the format; layers compute on contiguous copies.
//
// **Torch counterpart.** torch.Tensor.contiguous with its memory_format.
// **Threads and exceptions.** A ShapeError for channels_last of a tensor that is not [batch,
// channels, height, width].
inline Tensor contiguous(const Tensor& x, MemoryFormat format) { return x.contiguous(format); }

// Exchanges two dimensions.
//
// **Torch counterpart.** torch.transpose.
inline Tensor transpose(const Tensor& x, std::int64_t dim0, std::int64_t dim1) {
  return x.transpose(dim0, dim1);
}

// Transposes a matrix; returns a tensor of fewer dimensions as it is.
//
// **Torch counterpart.** torch.t.
inline Tensor t(const Tensor& x) { return x.t(); }

// The part of `length` elements of a dimension from `start` on; a negative start counts from the
// end.
//
// **Torch counterpart.** torch.narrow.
// **Threads and exceptions.** An IndexError if the part exceeds the dimension, a ValueError for a
// negative length.
inline Tensor narrow(const Tensor& x, std::int64_t dim, std::int64_t start, std::int64_t length) {
  return x.narrow(dim, start, length);
}

// Element `index` of a dimension, which is removed; a negative index counts from the end.
//
// **Torch counterpart.** torch.select.
// **Threads and exceptions.** An IndexError for an index out of range.
inline Tensor select(const Tensor& x, std::int64_t dim, std::int64_t index) {
  return x.select(dim, index);
}

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/shape.ipp>
#endif
