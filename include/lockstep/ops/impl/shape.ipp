// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/memory_format.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace lockstep::detail {

struct PermuteOp {
  static constexpr const char* name = "permute";
  Shape dims;  // dimension i of the result is dimension dims[i] of x

  Tensor forward(const Tensor& x) const { return permuted(x, dims); }
  Tensor backward(const Backward&, const Tensor& grad) const {
    Shape inverse = dims;
    for (std::size_t d = 0; d < dims.size(); ++d) {
      inverse[static_cast<std::size_t>(dims[d])] = static_cast<std::int64_t>(d);
    }
    return apply(PermuteOp{inverse}, grad);
  }
};

// Puts a tensor into zeros: the transpose of narrow.
struct NarrowGradOp {
  static constexpr const char* name = "narrow_backward";
  std::size_t dim;
  std::int64_t start;
  std::int64_t size;  // of the result along dim
  std::int64_t length = 0;

  Tensor forward(const Tensor& part) {
    length = part.sizes()[dim];
    Shape shape = part.sizes();
    shape[dim] = size;
    Tensor whole = zeros(shape, part.options());
    copy_into(part_of(whole, dim, start, length), part);
    return whole;
  }
  Tensor backward(const Backward&, const Tensor& grad) const {
    return narrow_at(grad, dim, start, length);
  }
};

struct NarrowOp {
  static constexpr const char* name = "narrow";
  std::size_t dim;
  std::int64_t start;
  std::int64_t length;
  std::int64_t size = 0;

  Tensor forward(const Tensor& x) {
    size = x.sizes()[dim];
    return part_of(x, dim, start, length);
  }
  Tensor backward(const Backward&, const Tensor& grad) const {
    return apply(NarrowGradOp{dim, start, size}, grad);
  }
};

LOCKSTEP_INLINE Tensor narrow_at(const Tensor& x, std::size_t dim, std::int64_t start,
                                 std::int64_t length) {
  return apply(NarrowOp{dim, start, length}, x);
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor Tensor::permute(const Shape& dims) const {
  check<ShapeError>(dims.size() == sizes().size(), "permute: the list of dims ", dims,
                    " does not fit a tensor of shape ", sizes());
  Shape order = dims;
  std::bitset<Shape::kMaxDims> seen;
  for (std::int64_t& dim : order) {
    const std::size_t at = wrap_dim(dim, dims.size());
    check<ValueError>(!seen[at], "permute: dimension ", at,
                      " appears more than once in the list of dims ", dims);
    seen[at] = true;
    dim = static_cast<std::int64_t>(at);
  }
  return apply(detail::PermuteOp{order}, *this);
}

LOCKSTEP_INLINE Tensor Tensor::contiguous(MemoryFormat format) const {
  if (format == MemoryFormat::contiguous) return contiguous();
  check<ShapeError>(dim() == 4, "contiguous: channels_last is for tensors of shape [batch, ",
                    "channels, height, width], got ", sizes());
  if (is_contiguous(format)) return *this;
  return permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2});
}

LOCKSTEP_INLINE Tensor Tensor::transpose(std::int64_t dim0, std::int64_t dim1) const {
  Shape order = sizes();
  for (std::size_t d = 0; d < order.size(); ++d) order[d] = static_cast<std::int64_t>(d);
  const std::size_t first = wrap_dim(dim0, order.size());
  const std::size_t second = wrap_dim(dim1, order.size());
  if (!order.empty()) std::swap(order[first], order[second]);
  return apply(detail::PermuteOp{order}, *this);
}

LOCKSTEP_INLINE Tensor Tensor::t() const {
  check<ShapeError>(dim() <= 2, "t: expected a tensor of at most 2 dimensions, got shape ",
                    sizes());
  return dim() < 2 ? *this : transpose(0, 1);
}

LOCKSTEP_INLINE Tensor Tensor::narrow(std::int64_t dim, std::int64_t start,
                                      std::int64_t length) const {
  check<ShapeError>(this->dim() > 0, "narrow: the tensor has no dimensions");
  const std::size_t at = wrap_dim(dim, sizes().size());
  const std::int64_t size = sizes()[at];
  check<ValueError>(length >= 0, "narrow: length must be non-negative, got ", length);
  check<IndexError>(start >= -size && start <= size, "narrow: start ", start,
                    " is out of range for dimension ", at, " of shape ", sizes());
  const std::int64_t first = start < 0 ? start + size : start;
  check<IndexError>(length <= size - first, "narrow: start (", first, ") + length (", length,
                    ") exceeds dimension size (", size, ") of dimension ", at, " of shape ",
                    sizes());
  return detail::narrow_at(*this, at, first, length);
}

LOCKSTEP_INLINE Tensor Tensor::select(std::int64_t dim, std::int64_t index) const {
  check<ShapeError>(this->dim() > 0, "select: the tensor has no dimensions");
  const std::size_t at = wrap_dim(dim, sizes().size());
  const std::int64_t size = sizes()[at];
  check<IndexError>(index >= -size && index < size, "select: index ", index,
                    " is out of range for dimension ", at, " of shape ", sizes());
  Shape shape = sizes();
  shape.erase(at);
  return detail::narrow_at(*this, at, index < 0 ? index + size : index, 1).reshape(shape);
}

LOCKSTEP_INLINE const Tensor Tensor::operator[](std::int64_t index) const {
  return select(0, index);
}

}  // namespace lockstep
