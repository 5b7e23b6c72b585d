// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/nn/layer.hpp>
#include <lockstep/nn/layer_norm.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

namespace lockstep::nn {

LOCKSTEP_INLINE LayerNorm::LayerNorm(const Shape& shape, const LayerNormOptions& options)
    : normalized_shape(shape), eps(options.eps) {
  check<ValueError>(!shape.empty(), "LayerNorm: expected normalized_shape to have a dimension");
  for (const std::int64_t size : shape) {
    detail::check_layer_size("LayerNorm", "each size of normalized_shape", size);
  }
  const TensorOptions like = detail::parameter_options("LayerNorm", options.dtype, options.device);
  check<ValueError>(options.eps >= 0, "LayerNorm: expected an eps of at least 0, got ",
                    options.eps);
  if (!options.elementwise_affine) return;
  weight = Parameter(ones(shape, like));
  if (options.bias) bias = Parameter(zeros(shape, like));
}

}  // namespace lockstep::nn
