// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/nn/pooling.hpp>
#include <lockstep/ops/pooling.hpp>
#include <lockstep/ops/size2d.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep::nn {

LOCKSTEP_INLINE MaxPool2d::MaxPool2d(Size2d kernel_size, const MaxPool2dOptions& options)
    : kernel(kernel_size), stride(options.stride.value_or(kernel_size)), padding(options.padding) {
  detail::check_pool_sizes("MaxPool2d", kernel, stride, padding);
}

LOCKSTEP_INLINE AvgPool2d::AvgPool2d(Size2d kernel_size, const AvgPool2dOptions& options)
    : kernel(kernel_size),
      stride(options.stride.value_or(kernel_size)),
      padding(options.padding),
      count_include_pad(options.count_include_pad) {
  detail::check_pool_sizes("AvgPool2d", kernel, stride, padding);
}

}  // namespace lockstep::nn
