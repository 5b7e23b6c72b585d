// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/autocast.hpp>
#include <lockstep/ops/channel_norm.hpp>
#include <lockstep/ops/group_norm.hpp>
#include <lockstep/ops/layer_norm.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace lockstep {

LOCKSTEP_INLINE Tensor group_norm(const Tensor& x, std::int64_t num_groups, const Tensor& weight,
                                  const Tensor& bias, double eps) {
  detail::check_defined("group_norm", "the input", x);
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
  for (const auto& [name, each] : {std::pair<const char*, const Tensor&>("weight", weight),
                                   std::pair<const char*, const Tensor&>("bias", bias)}) {
    if (!each.defined()) continue;
    detail::check_same_kind("group_norm", "the input", x, name, each);
    check<ShapeError>(each.sizes() == Shape{channels}, "group_norm: expected ", name,
                      " to be of shape ", Shape{channels}, ", got ", each.sizes());
  }
  const std::int64_t rows = x.size(0) * num_groups;
  const std::int64_t width = x.numel() / std::max<std::int64_t>(rows, 1);
  Tensor y = layer_norm(x.reshape({rows, width}), {width}, {}, {}, eps).reshape(x.sizes());
  if (weight.defined()) return detail::channel_affine(y, 1, {}, weight, bias);
  if (!bias.defined()) return y;
  Shape one_each = x.sizes();
  std::fill(one_each.begin(), one_each.end(), 1);
  one_each[1] = channels;
  return y + bias.reshape(one_each);
}

}  // namespace lockstep
