// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/call_floating.hpp>
#include <lockstep/ops/channel_sum.hpp>
#include <lockstep/ops/elementwise.hpp>
#include <lockstep/ops/kernels/axis.hpp>
#include <lockstep/ops/kernels/channel_norm_kernels.hpp>
#include <lockstep/ops/kernels/pointwise_kernels.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/softmax.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

// The parts of normalisations: the statistics of each channel, and a linear function for each
// channel. A channel is all elements with one index along dimension `dim`. Tensors are of f32 or
// f64.
namespace lockstep::detail {

inline Tensor channel_affine(const Tensor& x, std::size_t dim, const Tensor& mean,
                             const Tensor& scale, const Tensor& shift);

// out[c] = Σ a · (b − mean[c]) over channel c; linear in each of the three.
struct ChannelDotOp {
  static constexpr const char* name = "channel_dot";
  std::size_t dim;
  Saved a = {};
  Saved b = {};
  Saved mean = {};

  Tensor forward(const Tensor& left, const Tensor& right, const Tensor& centre) {
    a = left;
    b = right;
    mean = centre;
    return call_floating<ChannelDotCall>(name, {left.sizes()[dim]}, left, right, centre,
                                         TheResult(), Axis(left.sizes(), dim));
  }

  std::array<Tensor, 3> backward(const Backward& saved, const Tensor& grad) const {
    std::array<Tensor, 3> grads;
    if (saved.needs(0)) grads[0] = channel_affine(saved(b), dim, saved(mean), grad, {});
    if (saved.needs(1)) grads[1] = channel_affine(saved(a), dim, {}, grad, {});
    if (saved.needs(2)) grads[2] = -(grad * channel_sum(saved(a), dim));
    return grads;
  }
};

// out = (x − mean[c]) · scale[c] + shift[c]; mean and shift may be undefined.
struct ChannelAffineOp {
  static constexpr const char* name = "channel_affine";
  std::size_t dim;
  Saved x = {};
  Saved mean = {};
  Saved scale = {};

  Tensor forward(const Tensor& values, const Tensor& centre, const Tensor& factor,
                 const Tensor& offset) {
    x = values;
    mean = centre;
    scale = factor;
    return call_floating<ChannelAffineCall>(name, values.sizes(), values, centre, factor, offset,
                                            TheResult(), Axis(values.sizes(), dim));
  }

  std::array<Tensor, 4> backward(const Backward& saved, const Tensor& grad) const {
    std::array<Tensor, 4> grads;
    if (saved.needs(0)) grads[0] = channel_affine(grad, dim, {}, saved(scale), {});
    if (saved.needs(2)) {
      grads[2] = lockstep::apply(ChannelDotOp{dim}, grad, saved(x), saved(mean));
    }
    if (saved.needs(1) || saved.needs(3)) {
      const Tensor total = channel_sum(grad, dim);
      if (saved.needs(1)) grads[1] = -(total * saved(scale));
      if (saved.needs(3)) grads[3] = total;
    }
    return grads;
  }
};

inline Tensor channel_affine(const Tensor& x, std::size_t dim, const Tensor& mean,
                             const Tensor& scale, const Tensor& shift) {
  return lockstep::apply(ChannelAffineOp{dim}, x, mean, scale, shift);
}

// x · weight[c] + bias[c] along dimension 1; both may be undefined. With a bias alone, x is not
// saved for backward.
inline Tensor with_affine(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (weight.defined()) return channel_affine(x, 1, {}, weight, bias);
  if (!bias.defined()) return x;
  Shape one_each = x.sizes();
  std::fill(one_each.begin(), one_each.end(), 1);
  one_each[1] = bias.numel();
  return x + bias.reshape(one_each);
}

// Throws unless a parameter or statistic is undefined, or has the input's dtype and device and
// `shape`.
inline void check_norm_operand(const char* operation, const char* name, const Tensor& tensor,
                               const Tensor& x, const Shape& shape) {
  if (!tensor.defined()) return;
  check_same_kind(operation, "the input", x, name, tensor);
  check<ShapeError>(tensor.sizes() == shape, operation, ": expected ", name, " to be of shape ",
                    shape, ", got ", tensor.sizes(), " for an input of shape ", x.sizes());
}

// Each channel's mean, and its variance, the mean of (x − mean)²; both 0 for an empty channel.
struct ChannelMomentsOp {
  static constexpr const char* name = "channel_moments";
  std::size_t dim;
  double count = 0;
  Saved x = {};
  Saved mean = {};

  std::vector<Tensor> forward(const Tensor& values) {
    x = values;
    const Axis axis(values.sizes(), dim);
    count = static_cast<double>(std::max<std::size_t>(axis.outer * axis.inner, 1));
    const Shape channels{values.sizes()[dim]};
    const Tensor var = empty_on(current_stream(values.device()), channels, values.dtype());
    std::vector<Tensor> moments{call_floating<ChannelMomentsCall>(
        name, channels, values, TheResult(), AlsoWritten{var}, axis)};
    moments.push_back(var);
    mean = Saved::output(moments[0], 0);
    return moments;
  }

  // The mean minimises the sum of (x − mean)², so its own derivative does not contribute: that of
  // the variance is 2 · (x − mean) / count.
  Tensor backward(const Backward& saved, const std::vector<Tensor>& grads) const {
    const Tensor scale = grads[1].defined() ? grads[1] * (2 / count) : zeros_like(grads[0]);
    const Tensor shift = grads[0].defined() ? grads[0] * (1 / count) : Tensor();
    return channel_affine(saved(x), dim, saved(mean), scale, shift);
  }
};

struct Moments {
  Tensor mean;
  Tensor var;
};

inline Moments channel_moments(const Tensor& x, std::size_t dim) {
  const std::vector<Tensor> moments = lockstep::apply(ChannelMomentsOp{dim}, x);
  return {moments[0], moments[1]};
}

// 1 / √(var + eps)
struct InverseDeviationOp {
  static constexpr const char* name = "inverse_deviation";
  double eps;
  Saved y = {};

  Tensor forward(const Tensor& var) {
    Tensor result = dispatch_floating(var.dtype(), name, [&]<class T>(T) {
      return map<T, T>(var, InverseRoot<T>{static_cast<T>(eps)});
    });
    y = Saved::output(result);
    return result;
  }

  Tensor backward(const Backward& saved, const Tensor& grad) const {
    const Tensor root = saved(y);
    if (is_grad_enabled()) return grad * (square(root) * root) * -0.5;
    return map_elements<InverseRootGradient>(name, grad, root);
  }
};

inline Tensor inverse_deviation(const Tensor& var, double eps) {
  return lockstep::apply(InverseDeviationOp{eps}, var);
}

}  // namespace lockstep::detail
