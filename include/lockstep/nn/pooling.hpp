// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/nn/layer.hpp>
#include <lockstep/ops/pooling.hpp>
#include <lockstep/ops/size2d.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <optional>

namespace lockstep::nn {

// The windows of a pooling layer.
struct PoolWindows : detail::NoMembers {
  Size2d kernel;
  Size2d stride;
  Size2d padding;

 protected:
  PoolWindows(const char* layer, Size2d size, std::optional<Size2d> step, Size2d pad)
      : kernel(size), stride(step.value_or(size)), padding(pad) {
    detail::check_pool_sizes(layer, kernel, stride, padding);
  }
};

struct MaxPool2dOptions {
  std::optional<Size2d> stride = {};  // the kernel's size if absent
  Size2d padding = 0;
};

// The largest element of each window of `kernel` in images [batch, channels, height, width] (or one
// without the batch).
//
// **Torch counterpart.** torch.nn.MaxPool2d, without dilation and ceil_mode.
// **Threads and exceptions.** A ValueError for an invalid size, such as a padding of more than half
// the kernel; forward throws what lockstep::max_pool2d throws.
// **Example.** nn::MaxPool2d pool{3, {.stride = 2, .padding = 1}};
struct MaxPool2d : PoolWindows {
  explicit MaxPool2d(Size2d kernel_size, const MaxPool2dOptions& options = {})
      : PoolWindows("MaxPool2d", kernel_size, options.stride, options.padding) {}

  Tensor forward(const Tensor& x) const { return max_pool2d(x, kernel, stride, padding); }
  Tensor operator()(const Tensor& x) const { return forward(x); }
};

struct AvgPool2dOptions {
  std::optional<Size2d> stride = {};  // the kernel's size if absent
  Size2d padding = 0;
  bool count_include_pad = true;
};

// The mean of each window of `kernel` in images like MaxPool2d's.
//
// **Torch counterpart.** torch.nn.AvgPool2d, without ceil_mode and divisor_override.
// **Threads and exceptions.** As MaxPool2d; forward throws what lockstep::avg_pool2d throws.
// **Example.** nn::AvgPool2d pool{2};
struct AvgPool2d : PoolWindows {
  bool count_include_pad;

  explicit AvgPool2d(Size2d kernel_size, const AvgPool2dOptions& options = {})
      : PoolWindows("AvgPool2d", kernel_size, options.stride, options.padding),
        count_include_pad(options.count_include_pad) {}

  Tensor forward(const Tensor& x) const {
    return avg_pool2d(x, kernel, stride, padding, count_include_pad);
  }
  Tensor operator()(const Tensor& x) const { return forward(x); }
};

}  // namespace lockstep::nn
