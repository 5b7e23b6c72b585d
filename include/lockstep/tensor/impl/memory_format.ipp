// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/memory_format.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace lockstep::detail {

LOCKSTEP_INLINE Tensor permuted(const Tensor& x, const Shape& dims) {
  Shape sizes = dims;
  Shape strides = dims;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    sizes[d] = x.sizes()[static_cast<std::size_t>(dims[d])];
    strides[d] = x.strides()[static_cast<std::size_t>(dims[d])];
  }
  return make_view(x, sizes, strides, x.impl()->offset);
}

LOCKSTEP_INLINE std::size_t behind_channels(std::size_t dim) {
  constexpr std::array<std::size_t, 4> place = {0, 3, 1, 2};
  return place[dim];
}

LOCKSTEP_INLINE bool is_channels_last(const Tensor& x) {
  return x.dim() == 4 && !x.is_contiguous() && channels_to_back(x).is_contiguous();
}

LOCKSTEP_INLINE bool repeats_elements(const Tensor& tensor) {
  if (tensor.is_contiguous()) return false;
  const Shape& sizes = tensor.sizes();
  const Shape& strides = tensor.strides();
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    std::int64_t reached = 0;  // by the dimensions of smaller strides
    for (std::size_t e = 0; e < sizes.size(); ++e) {
      const bool inner = std::pair(strides[e], e) < std::pair(strides[d], d);
      if (inner) reached += (sizes[e] - 1) * strides[e];
    }
    if (strides[d] <= reached) return true;
  }
  return false;
}

LOCKSTEP_INLINE Tensor empty_in_layout_of(const Tensor& like) {
  if (!is_channels_last(like)) return empty(like.sizes(), like.options());
  return channels_to_front(empty(channels_to_back(like).sizes(), like.options()));
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE bool Tensor::is_contiguous(MemoryFormat format) const {
  if (format == MemoryFormat::contiguous) return is_contiguous();
  return dim() == 4 && (numel() == 0 || detail::channels_to_back(*this).is_contiguous());
}

}  // namespace lockstep
