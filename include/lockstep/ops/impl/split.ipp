// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/cat.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/split.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::detail {

struct SplitOp {
  static constexpr const char* name = "split";
  static constexpr bool saves = false;
  std::size_t dim;
  std::vector<std::int64_t> lengths;
  Shape shape = {};
  TensorOptions options = {};

  std::vector<Tensor> forward(const Tensor& x) {
    shape = x.sizes();
    options = x.options();
    std::vector<Tensor> parts;
    std::int64_t start = 0;
    for (const std::int64_t length : lengths) {
      parts.push_back(part_of(x, dim, start, length));
      start += length;
    }
    return parts;
  }
  Tensor backward(const Backward&, const std::vector<Tensor>& grads) const {
    std::vector<Tensor> parts = grads;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].defined()) continue;
      Shape part = shape;
      part[dim] = lengths[i];
      parts[i] = zeros(part, options);
    }
    return cat_at(parts, dim);
  }
};

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE std::vector<Tensor> split(const Tensor& x, const std::vector<std::int64_t>& sizes,
                                          std::int64_t dim) {
  check<ShapeError>(x.dim() > 0, "split: the tensor has no dimensions");
  const std::size_t at = wrap_dim(dim, x.sizes().size());
  std::int64_t rest = x.sizes()[at];
  bool good = true;
  for (const std::int64_t size : sizes) {
    good = good && size >= 0 && size <= rest;
    if (good) rest -= size;
  }
  check<ValueError>(good && rest == 0, "split: the sizes do not sum up to ", x.sizes()[at],
                    ", the size of dimension ", at, " of shape ", x.sizes());
  return apply(detail::SplitOp{at, sizes}, x);
}

LOCKSTEP_INLINE std::vector<Tensor> chunk(const Tensor& x, std::int64_t chunks, std::int64_t dim) {
  check<ValueError>(chunks > 0, "chunk: expected a number of chunks greater than 0, got ", chunks);
  check<ShapeError>(x.dim() > 0, "chunk: the tensor has no dimensions");
  const std::int64_t size = x.size(dim);
  const std::int64_t length = size / chunks + (size % chunks != 0 ? 1 : 0);
  std::vector<std::int64_t> sizes;
  for (std::int64_t rest = size; rest > 0; rest -= sizes.back()) {
    sizes.push_back(std::min(length, rest));
  }
  if (sizes.empty()) sizes.push_back(0);
  return split(x, sizes, dim);
}

}  // namespace lockstep
