// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>

namespace lockstep {

// The memory order of images [batch, channels, height, width]: the order of their indices, or the
// channels of each pixel side by side.
//
// **Torch counterpart.** torch.memory_format, without channels_last_3d.
enum class MemoryFormat : std::uint8_t { contiguous, channels_last };

}  // namespace lockstep

namespace lockstep::detail {

// Views of the same elements, not recorded for backward. permuted: dimension i is dimension dims[i]
// of x. channels_to_back: [batch, height, width, channels] of [batch, channels, height, width].
// channels_to_front: the reverse.
Tensor permuted(const Tensor& x, const Shape& dims);

inline Tensor channels_to_back(const Tensor& x) { return permuted(x, {0, 2, 3, 1}); }

inline Tensor channels_to_front(const Tensor& x) { return permuted(x, {0, 3, 1, 2}); }

// The dimension of channels_to_back's result that is dimension `dim` of its argument.
std::size_t behind_channels(std::size_t dim);

// True if the elements are in channels_last order and not in contiguous order; with one channel,
// for example, they are in both.
bool is_channels_last(const Tensor& x);

// True if several indices of the tensor may name the same element, because a dimension does not
// step over everything that those of smaller strides reach: after `expand`, whose stride is 0, and
// for lent memory whose strides make dimensions overlap.
bool repeats_elements(const Tensor& tensor);

// An uninitialised tensor like `like`: channels_last if it is, else contiguous.
Tensor empty_in_layout_of(const Tensor& like);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/tensor/impl/memory_format.ipp>
#endif
