// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/autocast.hpp>
#include <lockstep/ops/channel_norm.hpp>
#include <lockstep/ops/group_norm.hpp>
#include <lockstep/ops/layer_norm.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

namespace lockstep {

LOCKSTEP_INLINE Tensor group_norm(const Tensor& x, std::int64_t num_groups, const Tensor& weight,
                                  const Tensor& bias, double eps) {
  detail::check_floating("group_norm", x);
  if (is_autocast_enabled()) {
    return detail::autocast_to_f32(group_norm, x, num_groups, weight, bias, eps);
  }
  if (detail::is_half_precision(x.dtype())) {
    return group_norm(x.to(Dtype::f32), num_groups, weight, bias, eps).to(x.dtype());
  }
  check<ShapeError>(x.dim() >= 2,
                    "group_norm: expected an input of shape [batch, channels, …], got ", x.sizes());
  const std::int64_t channels = x.size(1);
  check<ValueError>(num_groups >= 1 && channels % num_groups == 0, "group_norm: ", channels,
                    " channels cannot be divided into ", num_groups, " groups");
  detail::check_norm_operand("group_norm", "weight", weight, x, {channels});
  detail::check_norm_operand("group_norm", "bias", bias, x, {channels});
  // Without elements the number of groups may overflow.
  const bool any = x.numel() > 0;
  const std::int64_t rows = any ? x.size(0) * num_groups : 0;
  const std::int64_t width = any ? x.numel() / rows : 1;
  const Tensor y = layer_norm(x.reshape({rows, width}), {width}, {}, {}, eps).reshape(x.sizes());
  return detail::with_affine(y, weight, bias);
}

}  // namespace lockstep
