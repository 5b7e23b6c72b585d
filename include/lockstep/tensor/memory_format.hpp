// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>

namespace lockstep {

// Where the elements of images [batch, channels, height, width] lie: in the order of their indices,
// or the channels of each pixel side by side.
//
// **Torch counterpart.** torch.memory_format, without channels_last_3d.
enum class MemoryFormat : std::uint8_t { contiguous, channels_last };

}  // namespace lockstep

namespace lockstep::detail {

// Views of the same elements, not recorded for backward. Dimension i of the first is dimension
// dims[i] of x; the second makes [batch, height, width, channels] of [batch, channels, height,
// width], and the third the other way.
Tensor permuted(const Tensor& x, const Shape& dims);

inline Tensor channels_to_back(const Tensor& x) { return permuted(x, {0, 2, 3, 1}); }

inline Tensor channels_to_front(const Tensor& x) { return permuted(x, {0, 3, 1, 2}); }

// The dimension of channels_to_back's result that is `dim` of its argument.
std::size_t behind_channels(std::size_t dim);

// Whether the elements lie in the order channels_last and not in the order contiguous; with one
// channel, for example, they lie in both.
bool is_channels_last(const Tensor& x);

// Whether several indices of the tensor name the same element, as they do after `expand`: along a
// dimension of stride 0. (Lent memory may have strides by which dimensions overlap otherwise.)
bool repeats_elements(const Tensor& tensor);

// A tensor without values: channels_last if `like` is, else contiguous.
Tensor empty_in_layout_of(const Tensor& like);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/tensor/impl/memory_format.ipp>
#endif
