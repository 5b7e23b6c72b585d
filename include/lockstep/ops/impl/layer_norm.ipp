// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/autocast.hpp>
#include <lockstep/ops/call_floating.hpp>
#include <lockstep/ops/channel_norm.hpp>
#include <lockstep/ops/composed_grads.hpp>
#include <lockstep/ops/kernels/layer_norm_kernels.hpp>
#include <lockstep/ops/layer_norm.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::detail {

inline bool ends_with(const Shape& shape, const Shape& end) {
  return shape.size() >= end.size() && std::equal(end.begin(), end.end(), shape.end() - end.size());
}

// layer_norm by elementary operations.
inline Tensor composed_layer_norm(const Tensor& x, const Shape& normalized_shape,
                                  const Tensor& weight, const Tensor& bias, double eps) {
  const std::int64_t width = numel(normalized_shape);
  const Tensor flat = x.reshape({x.numel() / std::max<std::int64_t>(width, 1), width});
  const Moments moments = channel_moments(flat, 0);
  const Tensor y = channel_affine(flat, 0, moments.mean, inverse_deviation(moments.var, eps), {});
  const auto row = [width](const Tensor& t) { return t.defined() ? t.reshape({width}) : t; };
  return with_affine(y, row(weight), row(bias)).reshape(x.sizes());
}

struct LayerNormOp {
  static constexpr const char* name = "layer_norm";
  Shape normalized_shape;
  double eps;
  Saved x = {};
  Saved weight = {};
  Saved bias = {};
  Saved rows = {};  // [2, rows]: the means, and 1 / √(variance + eps)

  Tensor forward(const Tensor& values, const Tensor& factor, const Tensor& offset) {
    x = values;
    weight = factor;
    bias = offset;
    const std::int64_t width = numel(normalized_shape);
    const std::int64_t count = values.numel() / std::max<std::int64_t>(width, 1);
    const Tensor table = empty_on(current_stream(values.device()), {2, count}, values.dtype());
    const Tensor out =
        call_floating<LayerNormCall>(name, values.sizes(), values, factor, offset, TheResult(),
                                     AlsoWritten{table}, static_cast<std::size_t>(width), eps);
    rows = table;
    return out;
  }

  std::array<Tensor, 3> backward(const Backward& saved, const Tensor& grad) const {
    if (!is_grad_enabled()) return fused(saved, grad);
    return composed_grads<3>(
        {saved(x), saved(weight), saved(bias)}, {grad}, [this](const std::array<Tensor, 3>& in) {
          return std::vector{composed_layer_norm(in[0], normalized_shape, in[1], in[2], eps)};
        });
  }

 private:
  std::array<Tensor, 3> fused(const Backward& saved, const Tensor& grad) const {
    std::array<Tensor, 3> grads;
    const Tensor table = saved(rows);
    const Tensor in = saved(x);
    const Tensor factors = saved(weight);
    const Stream stream = current_stream(in.device());
    if (saved.needs(0)) grads[0] = empty_on(stream, in.sizes(), in.dtype());
    for (const std::size_t i : {std::size_t{1}, std::size_t{2}}) {
      if (!saved.needs(i)) continue;
      const Tensor slot = saved.gradient_slot(i);
      grads[i] =
          empty_at(&slot, {&table, &grad, &in, &factors}, stream, normalized_shape, in.dtype());
    }
    dispatch_floating(grad.dtype(), name, [&]<class T>(T) {
      launch_members<LayerNormGradCall<T>>(
          stream, Tensor(), grad, in, factors, table, AlsoWritten{grads[0]}, AlsoWritten{grads[1]},
          AlsoWritten{grads[2]}, static_cast<std::size_t>(numel(normalized_shape)));
    });
    return grads;
  }
};

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor layer_norm(const Tensor& x, const Shape& normalized_shape,
                                  const Tensor& weight, const Tensor& bias, double eps) {
  detail::check_floating("layer_norm", x);
  if (is_autocast_enabled()) {
    return detail::autocast_to_f32(layer_norm, x, normalized_shape, weight, bias, eps);
  }
  if (detail::is_half_precision(x.dtype())) {
    return layer_norm(x.to(Dtype::f32), normalized_shape, weight, bias, eps).to(x.dtype());
  }
  check<ShapeError>(!normalized_shape.empty() && detail::ends_with(x.sizes(), normalized_shape),
                    "layer_norm: expected an input whose last dimensions are normalized_shape = ",
                    normalized_shape, ", got ", x.sizes());
  detail::check_norm_operand("layer_norm", "weight", weight, x, normalized_shape);
  detail::check_norm_operand("layer_norm", "bias", bias, x, normalized_shape);
  return lockstep::apply(detail::LayerNormOp{normalized_shape, eps}, x, weight, bias);
}

}  // namespace lockstep
