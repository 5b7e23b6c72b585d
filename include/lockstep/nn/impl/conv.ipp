// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/nn/conv.hpp>
#include <lockstep/nn/layer.hpp>
#include <lockstep/ops/conv.hpp>
#include <lockstep/ops/size2d.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

namespace lockstep::nn {

LOCKSTEP_INLINE Conv2d::Conv2d(std::int64_t in_channels, std::int64_t out_channels, Size2d kernel,
                               const Conv2dOptions& options)
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
  check<ValueError>(in_channels % groups == 0 && out_channels % groups == 0,
                    "Conv2d: expected in_channels and out_channels to be divisible by groups, got ",
                    in_channels, ", ", out_channels, " and ", groups);
  weight =
      detail::first_weight({out_channels, in_channels / groups, kernel.height, kernel.width}, like);
  if (options.bias) bias = detail::first_bias(weight);
}

}  // namespace lockstep::nn
