// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/device/stream.hpp>
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
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/shape.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace lockstep::detail {

inline Shape result_shape(ConvPass pass, const ConvGeometry& g) {
  if (pass == ConvPass::forward) return {g.batch, g.out_channels, g.out_height, g.out_width};
  if (pass == ConvPass::input_grad) return {g.batch, g.in_channels, g.in_height, g.in_width};
  return {g.out_channels, g.group_in(), g.kernel_height, g.kernel_width};
}

template <ConvPass pass>
Tensor conv_pass(const ConvGeometry& g, const Tensor& first, const Tensor& second,
                 const Tensor& slot = {});

// A pass of a convolution, with the operands of ConvCall. Each pass is linear in both, and its
// derivatives are the other two passes.
template <ConvPass pass>
struct ConvOp {
  static constexpr const char* name = pass == ConvPass::forward      ? "conv2d"
                                      : pass == ConvPass::input_grad ? "conv2d_input_grad"
                                                                     : "conv2d_weight_grad";
  ConvGeometry g;
  const Tensor* slot = nullptr;  // for the result
  Saved first = {};
  Saved second = {};

  Tensor forward(const Tensor& left, const Tensor& right, const Tensor& bias) {
    if (right.requires_grad()) first = left;
    if (left.requires_grad()) second = right;
    const PackedWide in(left);
    const PackedWide other(right);
    const PackedWide add(bias);
    const Stream stream = current_stream(left.device());
    return compute_elements(left.dtype(), name, [&]<class T>(T) {
      Tensor out = empty_at(std::exchange(slot, nullptr), {&left, &right}, stream,
                            result_shape(pass, g), dtype_of<T>);
      std::int64_t tiles = 0;
      std::int64_t size = 0;
      if (g.batch > 0 && out.numel() > 0) {  // else an image may exceed the memory
        if constexpr (std::is_same_v<T, float>) tiles = conv_tiles_size(pass, g);
        size = tiles > 0       ? tiles
               : g.is_direct() ? DirectConv<T>::size(g)
                               : g.columns_size() + g.results_size() + g.transposed_size(pass);
      }
      const Tensor work = workspace(stream, size, dtype_of<T>);
      launch_call(stream,
                  ConvCall<T, pass>{input<T>(*in), input<T>(*other), optional_input<T>(*add),
                                    output<T>(work, stream), output<T>(out, stream), g, tiles > 0});
      return out;
    });
  }

  std::array<Tensor, 3> backward(const Backward& saved, const Tensor& grad) {
    std::array<Tensor, 3> grads;
    if constexpr (pass == ConvPass::forward) {
      if (saved.needs(0)) grads[0] = conv_pass<ConvPass::input_grad>(g, saved(second), grad);
      if (saved.needs(1)) {
        grads[1] = conv_pass<ConvPass::weight_grad>(g, saved(first), grad, saved.gradient_slot(1));
      }
      if (saved.needs(2)) grads[2] = channel_sum(grad, 1, saved.gradient_slot(2));
    } else if constexpr (pass == ConvPass::input_grad) {
      if (saved.needs(0)) grads[0] = conv_pass<ConvPass::weight_grad>(g, grad, saved(second));
      if (saved.needs(1)) grads[1] = conv_pass<ConvPass::forward>(g, grad, saved(first));
    } else {
      if (saved.needs(0)) grads[0] = conv_pass<ConvPass::input_grad>(g, grad, saved(second));
      if (saved.needs(1)) grads[1] = conv_pass<ConvPass::forward>(g, saved(first), grad);
    }
    return grads;
  }
};

template <ConvPass pass>
Tensor conv_pass(const ConvGeometry& g, const Tensor& first, const Tensor& second,
                 const Tensor& slot) {
  return apply(ConvOp<pass>{g, &slot}, first, second, Tensor());
}

LOCKSTEP_INLINE void check_conv_sizes(const char* name, Size2d stride, Size2d padding,
                                      Size2d dilation) {
  check<ValueError>(stride.height >= 1 && stride.width >= 1, name,
                    ": expected a stride of at least 1, got ", stride);
  constexpr std::int64_t kMost = INT64_MAX / 4;  // twice this plus an image does not overflow
  check<ValueError>(padding.height >= 0 && padding.width >= 0 && padding.height <= kMost &&
                        padding.width <= kMost,
                    name, ": expected a padding of at least 0 and at most ", kMost, ", got ",
                    padding);
  check<ValueError>(dilation.height >= 1 && dilation.width >= 1, name,
                    ": expected a dilation of at least 1, got ", dilation);
}

// The geometry of a convolution. Throws unless the arguments match. x has a batch.
inline ConvGeometry conv_geometry(const Tensor& x, const Tensor& weight, Size2d stride,
                                  Size2d padding, Size2d dilation, std::int64_t groups) {
  const Shape& in = x.sizes();
  const Shape& w = weight.sizes();
  check<ValueError>(groups >= 1, "conv2d: expected groups of at least 1, got ", groups);
  check<ShapeError>(w[0] % groups == 0, "conv2d: the ", w[0], " output channels of a weight ", w,
                    " do not divide into ", groups, " groups");
  check<ShapeError>(in[1] % groups == 0 && in[1] / groups == w[1], "conv2d: an input of shape ", in,
                    " does not fit a weight of shape ", w, " with groups = ", groups,
                    ": expected the input to have ", w[1], " channels for each group, but got ",
                    in[1], " channels in all");
  check_conv_sizes("conv2d", stride, padding, dilation);
  const std::int64_t height = in[2] + 2 * padding.height;
  const std::int64_t width = in[3] + 2 * padding.width;
  const auto fits = [](std::int64_t kernel, std::int64_t spread, std::int64_t size) {
    return kernel >= 1 && size >= 1 && kernel - 1 <= (size - 1) / spread;
  };
  check<ShapeError>(fits(w[2], dilation.height, height) && fits(w[3], dilation.width, width),
                    "conv2d: a kernel of shape ", Shape{w[2], w[3]}, " (weight ", w,
                    ") and dilation ", dilation, " does not fit an input of shape ", in,
                    ", padded to ", Shape{height, width});
  const std::int64_t out_height = (height - 1 - dilation.height * (w[2] - 1)) / stride.height + 1;
  const std::int64_t out_width = (width - 1 - dilation.width * (w[3] - 1)) / stride.width + 1;
  // A ShapeError if sizes that even an empty batch uses overflow.
  (void)numel({std::max(w[1], std::int64_t{1}), w[2], w[3], out_height, out_width});
  return {.batch = in[0],
          .in_channels = in[1],
          .in_height = in[2],
          .in_width = in[3],
          .out_channels = w[0],
          .kernel_height = w[2],
          .kernel_width = w[3],
          .stride_height = std::min(stride.height, height),  // a longer one also ends outside
          .stride_width = std::min(stride.width, width),
          .padding_height = padding.height,
          .padding_width = padding.width,
          .dilation_height = dilation.height,
          .dilation_width = dilation.width,
          .groups = w[0] == 0 && in[1] == 0 ? 1 : groups,  // without channels any number is valid
          .out_height = out_height,
          .out_width = out_width};
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
  detail::check_bias("conv2d", bias, weight);
  if (x.dim() == 3) {
    const Tensor one = x.reshape({1, x.size(0), x.size(1), x.size(2)});
    const Tensor y = conv2d(one, weight, bias, stride, padding, dilation, groups);
    return y.reshape({y.size(1), y.size(2), y.size(3)});
  }
  const detail::ConvGeometry g =
      detail::conv_geometry(x, weight, stride, padding, dilation, groups);
  return apply(detail::ConvOp<detail::ConvPass::forward>{g}, x, weight, bias);
}

}  // namespace lockstep
