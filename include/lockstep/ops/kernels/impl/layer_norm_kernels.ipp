// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/ops/kernels/layer_norm_kernels.hpp>
#include <lockstep/ops/kernels/vector_lanes.hpp>
#include <lockstep/ops/kernels/vector_math.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace lockstep::detail::vectorized {

#if defined(LOCKSTEP_LIBMVEC)

#define LOCKSTEP_EACH <lockstep/ops/kernels/impl/layer_norm_kernels.inc>
#include <lockstep/ops/kernels/impl/for_each_instructions.inc>

#endif

LOCKSTEP_INLINE bool layer_norm(const LayerNormCall<float>& x, Instructions by) {
  if (x.width < kLeastRow) return false;
  LOCKSTEP_BY_INSTRUCTIONS(layer_norm, x);
}

LOCKSTEP_INLINE bool layer_norm_grad(const LayerNormGradCall<float>& x, Instructions by) {
  if (x.width < kLeastRow) return false;
  LOCKSTEP_BY_INSTRUCTIONS(layer_norm_grad, x);
}

}  // namespace lockstep::detail::vectorized
