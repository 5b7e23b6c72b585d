// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/ops/conv_geometry.hpp>

#include <cstdint>

// Convolution of f32 on the host without its columns: tiles of the result are summed from padded
// images, a few at a time, which stay in the cache. What the kernel sees of the padding above and
// below an image is left out.
namespace lockstep::detail {

// The floats of work space that a pass needs by tiles; 0 if it is not computed by them, since this
// machine has none or the sizes would waste too much of them.
std::int64_t conv_tiles_size(ConvPass pass, const ConvGeometry& g);

// Computes it, with operands as ConvCall (ops/kernels/conv_kernels.hpp) has them.
void conv_tiles(ConvPass pass, const ConvGeometry& g, const float* first, const float* second,
                const float* bias, float* work, float* out);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/kernels/impl/conv_tiles.ipp>
#endif
