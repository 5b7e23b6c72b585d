// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/nn/layer.hpp>
#include <lockstep/ops/conv.hpp>
#include <lockstep/ops/size2d.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

namespace lockstep::nn {

struct Conv2dOptions {
  Size2d stride = 1;
  Size2d padding = 0;
  Size2d dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  Dtype dtype = Dtype::f32;
  Device device = {};
};

// The cross-correlation of images [batch, in, height, width] (or one without the batch) with a
// kernel for each output channel, plus a bias. With groups, each output channel sees only the input
// channels of its group.
//
// **Torch counterpart.** torch.nn.Conv2d without padding_mode, with its initialisation: weight and
// bias uniform in ±1/√(in / groups · kernel height · kernel width), drawn from the default
// generator.
// **Threads and exceptions.** A ValueError for an invalid size, a DtypeError for a dtype other than
// f32 and f64; forward throws what lockstep::conv2d throws.
// **Example.** nn::Conv2d conv{1, 32, 5, {.padding = 2}};
//   nn::Conv2d depthwise{32, 32, 3, {.padding = 1, .groups = 32}};
struct Conv2d : WeightAndBias {
  // weight: [out, in / groups, kernel height, kernel width]; bias: [out], or absent
  Size2d stride;
  Size2d padding;
  Size2d dilation;
  std::int64_t groups;

  Conv2d(std::int64_t in_channels, std::int64_t out_channels, Size2d kernel,
         const Conv2dOptions& options = {})
      : stride(options.stride),
        padding(options.padding),
        dilation(options.dilation),
        groups(options.groups) {
    detail::check_layer_size("Conv2d", "in_channels", in_channels);
    detail::check_layer_size("Conv2d", "out_channels", out_channels);
    const TensorOptions like = detail::parameter_options("Conv2d", options.dtype, options.device);
    check<ValueError>(kernel.height >= 1 && kernel.width >= 1,
                      "Conv2d: expected a kernel of at least 1, got ", kernel);
    detail::check_conv_sizes("Conv2d", stride, padding, dilation);
    detail::check_layer_size("Conv2d", "groups", groups);
    check<ValueError>(
        in_channels % groups == 0 && out_channels % groups == 0,
        "Conv2d: expected in_channels and out_channels to be divisible by groups, got ",
        in_channels, ", ", out_channels, " and ", groups);
    weight = detail::first_weight({out_channels, in_channels / groups, kernel.height, kernel.width},
                                  like);
    if (options.bias) bias = detail::first_bias(weight);
  }

  Tensor forward(const Tensor& x) const {
    return conv2d(x, weight, bias, stride, padding, dilation, groups);
  }
  Tensor operator()(const Tensor& x) const { return forward(x); }
};

}  // namespace lockstep::nn
