// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/nn/group_norm.hpp>
#include <lockstep/nn/layer.hpp>
#include <lockstep/ops/group_norm.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

namespace lockstep::nn {

LOCKSTEP_INLINE GroupNorm::GroupNorm(std::int64_t groups, std::int64_t channels,
                                     const GroupNormOptions& options)
    : num_groups(groups), num_channels(channels), eps(options.eps) {
  detail::check_layer_size("GroupNorm", "num_groups", groups);
  detail::check_layer_size("GroupNorm", "num_channels", channels);
  check<ValueError>(channels % groups == 0, "GroupNorm: ", channels,
                    " channels cannot be divided into ", groups, " groups");
  const TensorOptions like = detail::parameter_options("GroupNorm", options.dtype, options.device);
  check<ValueError>(options.eps >= 0, "GroupNorm: expected an eps of at least 0, got ",
                    options.eps);
  if (!options.affine) return;
  weight = Parameter(ones({channels}, like));
  bias = Parameter(zeros({channels}, like));
}

LOCKSTEP_INLINE Tensor GroupNorm::forward(const Tensor& x) const {
  check<ShapeError>(x.dim() >= 2 && x.size(1) == num_channels,
                    "GroupNorm: expected an input of shape [batch, ", num_channels, ", …], got ",
                    x.sizes());
  return group_norm(x, num_groups, weight, bias, eps);
}

}  // namespace lockstep::nn
