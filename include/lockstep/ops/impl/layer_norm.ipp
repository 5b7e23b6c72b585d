// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/autocast.hpp>
#include <lockstep/ops/channel_norm.hpp>
#include <lockstep/ops/layer_norm.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/half.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lockstep::detail {

inline void check_normalized(const char* name, const Tensor& tensor, const Tensor& x,
                             const Shape& normalized) {
  if (!tensor.defined()) return;
  check_same_kind("layer_norm", "the input", x, name, tensor);
  check<ShapeError>(tensor.sizes() == normalized, "layer_norm: expected ", name,
                    " to be of shape normalized_shape = ", normalized, ", got ", tensor.sizes());
}

inline bool ends_with(const Shape& shape, const Shape& end) {
  return shape.size() >= end.size() && std::equal(end.begin(), end.end(), shape.end() - end.size());
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor layer_norm(const Tensor& x, const Shape& normalized_shape,
                                  const Tensor& weight, const Tensor& bias, double eps) {
  if (is_autocast_enabled()) {
    return detail::autocast_to_f32(layer_norm, x, normalized_shape, weight, bias, eps);
  }
  if (detail::is_half_precision(x.dtype())) {
    return layer_norm(x.to(Dtype::f32), normalized_shape, weight, bias, eps).to(x.dtype());
  }
  check<ShapeError>(!normalized_shape.empty() && detail::ends_with(x.sizes(), normalized_shape),
                    "layer_norm: expected an input whose last dimensions are normalized_shape = ",
                    normalized_shape, ", got ", x.sizes());
  detail::check_normalized("weight", weight, x, normalized_shape);
  detail::check_normalized("bias", bias, x, normalized_shape);

  const std::int64_t width = numel(normalized_shape);
  std::int64_t rows = 1;
  for (std::size_t d = 0; d + normalized_shape.size() < x.sizes().size(); ++d) rows *= x.sizes()[d];
  const Tensor flat = x.reshape({rows, width});
  const detail::Moments moments = detail::channel_moments(flat, 0);
  Tensor y = detail::channel_affine(flat, 0, moments.mean,
                                    detail::inverse_deviation(moments.var, eps), {});
  if (weight.defined()) {
    const Tensor shift = bias.defined() ? bias.reshape({width}) : bias;
    y = detail::channel_affine(y, 1, {}, weight.reshape({width}), shift);
  } else if (bias.defined()) {
    y = y + bias.reshape({width});
  }
  return y.reshape(x.sizes());
}

}  // namespace lockstep
