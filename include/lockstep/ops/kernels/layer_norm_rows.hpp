// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/ops/kernels/vector_rows.hpp>

#include <cstddef>

// As ops/kernels/vector_rows.hpp, of layer_norm.
namespace lockstep::detail::vectorized {

// Rows of `width` elements, each normalised by its own mean and variance, which are summed in
// double. Weight and bias may be null.
struct LayerNormRows {
  const float* in;
  const float* weight;
  const float* bias;
  float* out;
  float* mean;     // of each row
  float* inverse;  // 1 / √(variance + eps) of each row
  std::size_t rows, width;
  double eps;
};
bool layer_norm(const LayerNormRows& x, Instructions by = best_instructions());

// The gradients of such rows; those that are null are not wanted.
struct LayerNormGradRows {
  const float* grad;
  const float* in;
  const float* weight;  // may be null
  const float* mean;
  const float* inverse;
  float* out;
  float* weight_grad;
  float* bias_grad;
  std::size_t rows, width;
};
bool layer_norm_grad(const LayerNormGradRows& x, Instructions by = best_instructions());

}  // namespace lockstep::detail::vectorized

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/kernels/impl/layer_norm_rows.ipp>
#endif
