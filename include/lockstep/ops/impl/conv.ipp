// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/autocast.hpp>
#include <lockstep/ops/channel_sum.hpp>
#include <lockstep/ops/conv.hpp>
#include <lockstep/ops/conv_geometry.hpp>
#include <lockstep/ops/kernels/conv_kernels.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/size2d.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/shape.hpp>

#include <array>
#include <cstdint>
#include <utility>

namespace lockstep::detail {

// The three passes of a convolution. Each is linear in both of its operands, and its derivatives
// are the other two: with x, weight and grad of a geometry,
//   conv(x, weight), conv_input_grad(grad, weight), conv_weight_grad(x, grad).
struct ConvOp {
  static constexpr const char* name = "conv2d";
  ConvGeometry g;
  Saved x = {};
  Saved weight = {};
  Tensor forward(const Tensor& images, const Tensor& kernels, const Tensor& bias);
  std::array<Tensor, 3> backward(const Backward& saved, const Tensor& grad);
};

struct ConvInputGradOp {
  static constexpr const char* name = "conv2d_input_grad";
  ConvGeometry g;
  Saved grad = {};
  Saved weight = {};
  Tensor forward(const Tensor& gradient, const Tensor& kernels);
  std::array<Tensor, 2> backward(const Backward& saved, const Tensor& x_grad);
};

struct ConvWeightGradOp {
  static constexpr const char* name = "conv2d_weight_grad";
  ConvGeometry g;
  const Tensor* slot = nullptr;  // for the result
  Saved x = {};
  Saved grad = {};
  Tensor forward(const Tensor& images, const Tensor& gradient);
  std::array<Tensor, 2> backward(const Backward& saved, const Tensor& weight_grad);
};

LOCKSTEP_INLINE Tensor workspace(const Stream& stream, std::int64_t count, Dtype dtype) {
  return empty_on(stream, {stream.device().is_cpu() ? count : 0}, dtype);
}

LOCKSTEP_INLINE Tensor ConvOp::forward(const Tensor& images, const Tensor& kernels,
                                       const Tensor& bias) {
  x = images;
  weight = kernels;
  const Tensor in = packed_wide(images);
  const Tensor w = packed_wide(kernels);
  const Tensor b = bias.defined() ? packed_wide(bias) : bias;
  const Stream stream = current_stream(images.device());
  return compute_floating(images.dtype(), name, [&]<class T>(T) {
    Tensor out =
        empty_on(stream, {g.batch, g.out_channels, g.out_height, g.out_width}, dtype_of<T>);
    const std::int64_t tiles = tiles_size<T>(ConvPass::forward, g);
    const Tensor columns = workspace(stream, tiles > 0 ? tiles : g.columns_size(), dtype_of<T>);
    const Tensor results = workspace(stream, tiles > 0 ? 0 : g.results_size(), dtype_of<T>);
    const View<const T> add = b.defined() ? input<T>(b) : View<const T>{};
    launch_call(stream,
                ConvForward<T>{input<T>(in), input<T>(w), add, output<T>(columns, stream),
                               output<T>(results, stream), output<T>(out, stream), g, tiles > 0});
    return out;
  });
}

LOCKSTEP_INLINE Tensor ConvInputGradOp::forward(const Tensor& gradient, const Tensor& kernels) {
  grad = gradient;
  weight = kernels;
  const Tensor from = packed_wide(gradient);
  const Tensor w = packed_wide(kernels);
  const Stream stream = current_stream(gradient.device());
  return compute_floating(gradient.dtype(), name, [&]<class T>(T) {
    Tensor out = empty_on(stream, {g.batch, g.in_channels, g.in_height, g.in_width}, dtype_of<T>);
    const std::int64_t tiles = tiles_size<T>(ConvPass::input_grad, g);
    const Tensor columns = workspace(stream, tiles > 0 ? tiles : g.columns_size(), dtype_of<T>);
    const Tensor results = workspace(stream, tiles > 0 ? 0 : g.results_size(), dtype_of<T>);
    launch_call(stream,
                ConvInputGrad<T>{input<T>(from), input<T>(w), output<T>(columns, stream),
                                 output<T>(results, stream), output<T>(out, stream), g, tiles > 0});
    return out;
  });
}

LOCKSTEP_INLINE Tensor ConvWeightGradOp::forward(const Tensor& images, const Tensor& gradient) {
  x = images;
  grad = gradient;
  const Tensor in = packed_wide(images);
  const Tensor from = packed_wide(gradient);
  const Stream stream = current_stream(images.device());
  return compute_floating(images.dtype(), name, [&]<class T>(T) {
    Tensor out =
        empty_at(std::exchange(slot, nullptr), {&images, &gradient}, stream,
                 {g.out_channels, g.group_in(), g.kernel_height, g.kernel_width}, dtype_of<T>);
    const std::int64_t tiles = tiles_size<T>(ConvPass::weight_grad, g);
    const Tensor columns = workspace(stream, tiles > 0 ? tiles : g.columns_size(), dtype_of<T>);
    const Tensor results = workspace(stream, tiles > 0 ? 0 : g.results_size(), dtype_of<T>);
    const Tensor transposed = workspace(stream, tiles > 0 ? 0 : g.transposed_size(), dtype_of<T>);
    launch_call(stream, ConvWeightGrad<T>{input<T>(in), input<T>(from), output<T>(columns, stream),
                                          output<T>(results, stream), output<T>(transposed, stream),
                                          output<T>(out, stream), g, tiles > 0});
    return out;
  });
}

LOCKSTEP_INLINE std::array<Tensor, 3> ConvOp::backward(const Backward& saved, const Tensor& grad) {
  std::array<Tensor, 3> grads;
  if (saved.needs(0)) grads[0] = apply(ConvInputGradOp{g}, grad, saved(weight));
  if (saved.needs(1)) {
    const Tensor slot = saved.gradient_slot(1);
    grads[1] = apply(ConvWeightGradOp{g, &slot}, saved(x), grad);
  }
  if (saved.needs(2)) grads[2] = channel_sum(grad, 1, saved.gradient_slot(2));
  return grads;
}

LOCKSTEP_INLINE std::array<Tensor, 2> ConvInputGradOp::backward(const Backward& saved,
                                                                const Tensor& x_grad) {
  std::array<Tensor, 2> grads;
  if (saved.needs(0)) grads[0] = apply(ConvOp{g}, x_grad, saved(weight), Tensor());
  if (saved.needs(1)) grads[1] = apply(ConvWeightGradOp{g}, x_grad, saved(grad));
  return grads;
}

LOCKSTEP_INLINE std::array<Tensor, 2> ConvWeightGradOp::backward(const Backward& saved,
                                                                 const Tensor& weight_grad) {
  std::array<Tensor, 2> grads;
  if (saved.needs(0)) grads[0] = apply(ConvInputGradOp{g}, saved(grad), weight_grad);
  if (saved.needs(1)) grads[1] = apply(ConvOp{g}, saved(x), weight_grad, Tensor());
  return grads;
}

// The geometry of a convolution whose arguments fit each other, which is checked; x has a batch.
inline ConvGeometry conv_geometry(const Tensor& x, const Tensor& weight, Size2d stride,
                                  Size2d padding, Size2d dilation = 1, std::int64_t groups = 1) {
  const Shape& in = x.sizes();
  const Shape& w = weight.sizes();
  check<ValueError>(groups >= 1, "conv2d: expected groups of at least 1, got ", groups);
  check<ShapeError>(w[0] % groups == 0, "conv2d: the ", w[0], " output channels of a weight ", w,
                    " do not divide into ", groups, " groups");
  check<ShapeError>(in[1] % groups == 0 && in[1] / groups == w[1], "conv2d: an input of shape ", in,
                    " does not fit a weight of shape ", w, " with groups = ", groups,
                    ": expected the input to have ", w[1], " channels for each group, but got ",
                    in[1], " channels in all");
  check<ValueError>(stride.height >= 1 && stride.width >= 1,
                    "conv2d: expected a stride of at least 1, got ", stride);
  check<ValueError>(padding.height >= 0 && padding.width >= 0,
                    "conv2d: expected a padding of at least 0, got ", padding);
  check<ValueError>(dilation.height >= 1 && dilation.width >= 1,
                    "conv2d: expected a dilation of at least 1, got ", dilation);
  const std::int64_t height = in[2] + 2 * padding.height;
  const std::int64_t width = in[3] + 2 * padding.width;
  const auto fits = [](std::int64_t kernel, std::int64_t spread, std::int64_t size) {
    return kernel >= 1 && size >= 1 && kernel - 1 <= (size - 1) / spread;
  };
  check<ShapeError>(fits(w[2], dilation.height, height) && fits(w[3], dilation.width, width),
                    "conv2d: a kernel of shape ", Shape{w[2], w[3]}, " (weight ", w,
                    ") and dilation ", dilation, " does not fit an input of shape ", in,
                    ", padded to ", Shape{height, width});
  return {.batch = in[0],
          .in_channels = in[1],
          .in_height = in[2],
          .in_width = in[3],
          .out_channels = w[0],
          .kernel_height = w[2],
          .kernel_width = w[3],
          .stride_height = stride.height,
          .stride_width = stride.width,
          .padding_height = padding.height,
          .padding_width = padding.width,
          .dilation_height = dilation.height,
          .dilation_width = dilation.width,
          .groups = groups,
          .out_height = (height - 1 - dilation.height * (w[2] - 1)) / stride.height + 1,
          .out_width = (width - 1 - dilation.width * (w[3] - 1)) / stride.width + 1};
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                              Size2d stride, Size2d padding, Size2d dilation, std::int64_t groups) {
  if (is_autocast_enabled()) {
    return detail::autocast_to_half(conv2d, x, weight, bias, stride, padding, dilation, groups);
  }
  detail::check_same_kind("conv2d", "the input", x, "the weight", weight);
  check<ShapeError>((x.dim() == 4 || x.dim() == 3) && weight.dim() == 4,
                    "conv2d: expected an input of shape [batch, channels, height, width] and a "
                    "weight of shape [out, channels, height, width], got ",
                    x.sizes(), " and ", weight.sizes());
  if (bias.defined()) {
    detail::check_same_kind("conv2d", "the bias", bias, "the weight", weight);
    check<ShapeError>(bias.sizes() == Shape{weight.size(0)}, "conv2d: a bias of shape ",
                      bias.sizes(), " does not fit a weight of shape ", weight.sizes());
  }
  if (x.dim() == 3) {
    const Tensor one = x.reshape({1, x.size(0), x.size(1), x.size(2)});
    const Tensor y = conv2d(one, weight, bias, stride, padding, dilation, groups);
    return y.reshape({y.size(1), y.size(2), y.size(3)});
  }
  const detail::ConvGeometry g =
      detail::conv_geometry(x, weight, stride, padding, dilation, groups);
  return apply(detail::ConvOp{g}, x, weight, bias);
}

}  // namespace lockstep
