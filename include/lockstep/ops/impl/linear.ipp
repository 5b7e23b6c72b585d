// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/autocast.hpp>
#include <lockstep/ops/channel_sum.hpp>
#include <lockstep/ops/linear.hpp>
#include <lockstep/ops/matmul.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/tensor/shape.hpp>

#include <array>

namespace lockstep::detail {

// x · weightᵀ + bias for matrices; the bias may be undefined.
struct LinearOp {
  static constexpr const char* name = "linear";
  Saved x = {};
  Saved weight = {};

  Tensor forward(const Tensor& rows, const Tensor& matrix, const Tensor& bias) {
    if (matrix.requires_grad()) x = rows;
    if (rows.requires_grad()) weight = matrix;
    return product(name, rows, matrix, false, true, bias, nullptr);
  }

  std::array<Tensor, 3> backward(const Backward& saved, const Tensor& grad) {
    std::array<Tensor, 3> grads;
    if (saved.needs(0)) grads[0] = mm(grad, saved(weight));
    if (saved.needs(1)) grads[1] = mm(grad, saved(x), true, false, saved.gradient_slot(1));
    if (saved.needs(2)) grads[2] = channel_sum(grad, 1, saved.gradient_slot(2));
    return grads;
  }
};

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (is_autocast_enabled()) return detail::autocast_to_half(linear, x, weight, bias);
  detail::check_same_kind("linear", "the input", x, "the weight", weight);
  check<ShapeError>(weight.dim() == 2, "linear: expected a weight of shape [out, in], got ",
                    weight.sizes(), " for an input of shape ", x.sizes());
  check<ShapeError>(x.dim() > 0 && x.size(-1) == weight.size(1), "linear: an input of shape ",
                    x.sizes(), " does not fit a weight of shape ", weight.sizes(),
                    ": expected the input's last dimension to be ", weight.size(1));
  detail::check_bias("linear", bias, weight);
  if (x.dim() == 2) return apply(detail::LinearOp{}, x, weight, bias);
  Shape shape = x.sizes();
  shape[shape.size() - 1] = 1;
  const Tensor rows = x.reshape({numel(shape), x.size(-1)});
  shape[shape.size() - 1] = weight.size(0);
  return apply(detail::LinearOp{}, rows, weight, bias).reshape(shape);
}

}  // namespace lockstep
