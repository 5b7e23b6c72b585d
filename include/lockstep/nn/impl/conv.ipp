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
  detail::check_layer_dtype("Conv2d", options.dtype);
  check<ValueError>(kernel.height >= 1 && kernel.width >= 1,
                    "Conv2d: expected a kernel of at least 1, got ", kernel);
  check<ValueError>(stride.height >= 1 && stride.width >= 1,
                    "Conv2d: expected a stride of at least 1, got ", stride);
  check<ValueError>(padding.height >= 0 && padding.width >= 0,
                    "Conv2d: expected a padding of at least 0, got ", padding);
  check<ValueError>(dilation.height >= 1 && dilation.width >= 1,
                    "Conv2d: expected a dilation of at least 1, got ", dilation);
  detail::check_layer_size("Conv2d", "groups", groups);
  check<ValueError>(in_channels % groups == 0 && out_channels % groups == 0,
                    "Conv2d: expected in_channels and out_channels to be divisible by groups, got ",
                    in_channels, ", ", out_channels, " and ", groups);
  const TensorOptions tensor_options{.dtype = options.dtype, .device = options.device};
  weight = detail::first_weight({out_channels, in_channels / groups, kernel.height, kernel.width},
                                tensor_options);
  if (options.bias) bias = detail::first_bias(weight);
}

LOCKSTEP_INLINE Tensor Conv2d::forward(const Tensor& x) const {
  return conv2d(x, weight, bias, stride, padding, dilation, groups);
}

}  // namespace lockstep::nn
