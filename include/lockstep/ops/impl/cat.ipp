// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/autocast.hpp>
#include <lockstep/ops/cat.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::detail {

struct CatOp {
  static constexpr const char* name = "cat";
  static constexpr bool saves = false;
  std::size_t dim;
  std::vector<std::int64_t> lengths = {};

  // The arguments have been checked.
  Tensor forward(const std::vector<Tensor>& tensors) {
    Shape shape = tensors[0].sizes();
    shape[dim] = 0;
    for (const Tensor& tensor : tensors) {
      lengths.push_back(tensor.sizes()[dim]);
      shape[dim] += lengths.back();
    }
    Tensor whole = empty(shape, tensors[0].options());
    std::int64_t start = 0;
    for (const Tensor& tensor : tensors) {
      copy_into(part_of(whole, dim, start, tensor.sizes()[dim]), tensor);
      start += tensor.sizes()[dim];
    }
    return whole;
  }
  std::vector<Tensor> backward(const Backward& saved, const Tensor& grad) const {
    std::vector<Tensor> grads(lengths.size());
    std::int64_t start = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      if (saved.needs(i)) grads[i] = narrow_at(grad, dim, start, lengths[i]);
      start += lengths[i];
    }
    return grads;
  }
};

LOCKSTEP_INLINE Tensor cat_at(const std::vector<Tensor>& tensors, std::size_t dim) {
  return lockstep::apply(CatOp{dim}, tensors);
}

// Throws if the list is empty or has an undefined tensor.
inline void check_list(const char* operation, const std::vector<Tensor>& tensors) {
  check<ValueError>(!tensors.empty(), operation, ": expected a non-empty list of tensors");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    check<ValueError>(tensors[i].defined(), operation, ": tensor number ", i,
                      " in the list is undefined");
  }
}

// `cat` of defined tensors, for a function called `operation`.
inline Tensor join(const char* operation, const std::vector<Tensor>& tensors, std::int64_t dim) {
  if (autocast_promotes(tensors)) {
    return autocast_to_f32(
        [&](const std::vector<Tensor>& list) { return join(operation, list, dim); }, tensors);
  }
  const Shape& first = tensors[0].sizes();
  const std::size_t at = wrap_dim(dim, first.size());
  std::int64_t length = first[at];
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    check<ShapeError>(tensor.sizes().size() == first.size(), operation,
                      ": tensors must have the same number of dimensions: got ", first.size(),
                      " and ", tensor.sizes().size(), " (shape ", first, " for tensor number 0, ",
                      tensor.sizes(), " for tensor number ", i, " in the list)");
    for (std::size_t d = 0; d < first.size(); ++d) {
      check<ShapeError>(d == at || tensor.sizes()[d] == first[d], operation,
                        ": sizes of tensors must match except in dimension ", at,
                        ". Expected size ", first[d], " but got size ", tensor.sizes()[d],
                        " for tensor number ", i, " in the list (shape ", first,
                        " for tensor number 0, ", tensor.sizes(), " for tensor number ", i, ")");
    }
    check<ShapeError>(!__builtin_add_overflow(length, tensor.sizes()[at], &length), operation,
                      ": no number holds the sizes of dimension ", at, " added up: tensor number ",
                      i, " in the list is of shape ", tensor.sizes());
    if (tensor.device() == tensors[0].device() && tensor.dtype() == tensors[0].dtype()) continue;
    check_same_kind(operation, "tensor number 0 in the list", tensors[0],
                    str("tensor number ", i).c_str(), tensor);
  }
  return cat_at(tensors, at);
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor cat(const std::vector<Tensor>& tensors, std::int64_t dim) {
  detail::check_list("cat", tensors);
  check<ShapeError>(tensors[0].dim() > 0,
                    "cat: zero-dimensional tensors cannot be concatenated; use stack");
  return detail::join("cat", tensors, dim);
}

LOCKSTEP_INLINE Tensor stack(const std::vector<Tensor>& tensors, std::int64_t dim) {
  detail::check_list("stack", tensors);
  std::vector<Tensor> slices;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    check<ShapeError>(tensors[i].sizes() == tensors[0].sizes(),
                      "stack: expects each tensor to be equal size, but got ", tensors[0].sizes(),
                      " at entry 0 and ", tensors[i].sizes(), " at entry ", i);
    slices.push_back(unsqueeze(tensors[i], dim));
  }
  return detail::join("stack", slices, dim);
}

}  // namespace lockstep
