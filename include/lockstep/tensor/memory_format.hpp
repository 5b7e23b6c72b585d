// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

namespace lockstep {

// Where the elements of images [batch, channels, height, width] lie: in the order of their indices,
// or the channels of each pixel side by side.
//
// **Torch counterpart.** torch.memory_format, without channels_last_3d.
enum class MemoryFormat : std::uint8_t { contiguous, channels_last };

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/tensor/memory_format.ipp>
#endif
