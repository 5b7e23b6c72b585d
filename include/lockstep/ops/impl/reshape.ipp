// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace lockstep::detail {

// The strides with which the memory of a tensor can be viewed as `shape`, if it can: every new
// dimension must lie within a run of old ones that have even steps.
inline std::optional<Shape> view_strides(const Tensor& tensor, const Shape& shape) {
  if (tensor.is_contiguous()) return contiguous_strides(shape);
  const Shape& old = tensor.sizes();
  const Shape& steps = tensor.strides();
  Shape strides = shape;
  std::size_t next = shape.size();
  for (std::size_t first = old.size(); first > 0;) {
    std::size_t d = first - 1;
    const std::int64_t base = steps[d];
    std::int64_t run = old[d];
    while (d > 0 && (old[d - 1] == 1 || steps[d - 1] == run * base)) run *= old[--d];
    std::int64_t seen = 1;
    while (next > 0 && (seen < run || shape[next - 1] == 1)) {
      strides[--next] = seen * base;
      seen *= shape[next];
    }
    if (seen != run) return {};
    first = d;
  }
  return strides;
}

// The product of sizes; nothing if it overflows.
inline std::optional<std::int64_t> joined_size(std::span<const std::int64_t> sizes) {
  std::int64_t joined = 1;
  bool fits = true;
  for (const std::int64_t size : sizes) {
    if (size == 0) return 0;
    fits = !__builtin_mul_overflow(joined, size, &joined) && fits;
  }
  return fits ? std::optional(joined) : std::nullopt;
}

struct ReshapeOp {
  static constexpr const char* name = "reshape";
  Shape shape;
  Shape from = {};

  Tensor forward(const Tensor& x) {
    from = x.sizes();
    if (const std::optional<Shape> strides = view_strides(x, shape)) {
      return make_view(x, shape, *strides, x.impl()->offset);
    }
    const Tensor copy = packed(x);
    return make_view(copy, shape, contiguous_strides(shape), copy.impl()->offset);
  }
  Tensor backward(const Backward&, const Tensor& grad) const {
    return apply(ReshapeOp{from}, grad);
  }
};

struct ContiguousOp {
  static constexpr const char* name = "contiguous";
  Tensor forward(const Tensor& x) const { return packed(x); }
  Tensor backward(const Backward&, const Tensor& grad) const { return grad; }
};

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor Tensor::contiguous() const {
  return is_contiguous() ? *this : apply(detail::ContiguousOp{}, *this);
}

LOCKSTEP_INLINE Tensor Tensor::reshape(const Shape& shape) const {
  detail::check_defined("reshape", "the tensor", *this);
  Shape result = shape;
  std::size_t open = shape.size();
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != -1) {
      check<ShapeError>(shape[d] >= 0, "reshape: invalid shape dimension ", shape[d], " in ",
                        shape);
      continue;
    }
    check<ShapeError>(open == shape.size(), "reshape: only one dimension can be inferred, got ",
                      shape);
    open = d;
    result[d] = 1;
  }
  const std::int64_t count = numel();
  if (open < shape.size()) {
    const auto known = detail::joined_size(result);
    check<ShapeError>(known != 0, "reshape: cannot reshape a tensor of shape ", sizes(),
                      " into shape ", shape, ": the size −1 could be any value");
    result[open] = known ? count / *known : 0;
  }
  check<ShapeError>(detail::joined_size(result) == count, "reshape: shape ", shape,
                    " is invalid for a tensor of shape ", sizes(), " with ", count, " elements");
  return apply(detail::ReshapeOp{result}, *this);
}

LOCKSTEP_INLINE Tensor Tensor::flatten(std::int64_t start_dim, std::int64_t end_dim) const {
  detail::check_defined("flatten", "the tensor", *this);
  if (dim() == 0) return reshape({1}).flatten(start_dim, end_dim);
  const std::size_t start = wrap_dim(start_dim, sizes().size());
  const std::size_t end = wrap_dim(end_dim, sizes().size());
  check<ValueError>(start <= end, "flatten: start_dim ", start_dim, " comes after end_dim ",
                    end_dim, " in a tensor of shape ", sizes());
  const std::span old(sizes().begin(), sizes().end());
  const auto joined = detail::joined_size(old.subspan(start, end + 1 - start));
  check<ShapeError>(joined.has_value(), "flatten: no number holds the sizes ", start_dim, " to ",
                    end_dim, " of ", sizes(), " joined");
  Shape shape(old.first(start));
  shape.push_back(*joined);
  for (const std::int64_t size : old.subspan(end + 1)) shape.push_back(size);
  return reshape(shape);
}

LOCKSTEP_INLINE Tensor Tensor::unsqueeze(std::int64_t dim) const {
  Shape shape = sizes();
  shape.insert(wrap_dim(dim, shape.size() + 1), 1);
  return reshape(shape);
}

LOCKSTEP_INLINE Tensor Tensor::squeeze(std::int64_t dim) const {
  Shape shape = sizes();
  const std::size_t at = wrap_dim(dim, shape.size());
  if (!shape.empty() && shape[at] == 1) shape.erase(at);
  return reshape(shape);
}

LOCKSTEP_INLINE Tensor Tensor::squeeze() const {
  Shape shape;
  for (const std::int64_t size : sizes()) {
    if (size != 1) shape.push_back(size);
  }
  return reshape(shape);
}

}  // namespace lockstep
