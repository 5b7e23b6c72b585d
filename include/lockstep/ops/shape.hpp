// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/tensor/memory_format.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>

// Views: other dimensions of, or a part of, the same memory. What changes in a view changes in the
// tensor, and both have one version.
namespace lockstep {

namespace detail {

// The part [start, start + length) of a dimension; recorded.
Tensor narrow_at(const Tensor& x, std::size_t dim, std::int64_t start, std::int64_t length);

}  // namespace detail

// The dimensions in another order: dimension i of the result is dimension `dims[i]` of x.
//
// **Torch counterpart.** torch.permute.
inline Tensor permute(const Tensor& x, const Shape& dims) { return x.permute(dims); }

// x in a memory format: x itself if it is in that format, else a copy. Scatter, gather and
// gradients keep the layout; layers compute on contiguous copies.
//
// **Torch counterpart.** torch.Tensor.contiguous with its memory_format.
// **Threads and exceptions.** A ShapeError for channels_last of anything but images [batch,
// channels, height, width].
inline Tensor contiguous(const Tensor& x, MemoryFormat format) { return x.contiguous(format); }

// Two dimensions exchanged.
//
// **Torch counterpart.** torch.transpose.
inline Tensor transpose(const Tensor& x, std::int64_t dim0, std::int64_t dim1) {
  return x.transpose(dim0, dim1);
}

// A matrix transposed; a tensor of fewer dimensions as it is.
//
// **Torch counterpart.** torch.t.
inline Tensor t(const Tensor& x) { return x.t(); }

// The part of `length` elements from `start` on along a dimension; a negative start counts from the
// end.
//
// **Torch counterpart.** torch.narrow.
// **Threads and exceptions.** An IndexError if the part reaches out of the dimension, a ValueError
// for a negative length.
inline Tensor narrow(const Tensor& x, std::int64_t dim, std::int64_t start, std::int64_t length) {
  return x.narrow(dim, start, length);
}

// Element `index` of a dimension, which disappears; a negative index counts from the end.
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
