// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/ops/pooling.hpp>
#include <lockstep/ops/size2d.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <optional>

namespace lockstep::nn {

struct MaxPool2dOptions {
  std::optional<Size2d> stride = {};  // the kernel's size if absent
  Size2d padding = 0;
};

// The greatest element of each window of `kernel`, of images [batch, channels, height, width] (or
// one without the batch).
//
// **Torch counterpart.** torch.nn.MaxPool2d, without dilation and ceil_mode.
// **Threads and exceptions.** A ValueError for a size that makes no sense, such as a padding of
// more than half the kernel; forward's are those of lockstep::max_pool2d.
// **Example.** nn::MaxPool2d pool{3, {.stride = 2, .padding = 1}};
struct MaxPool2d {
  Size2d kernel;
  Size2d stride;
  Size2d padding;

  explicit MaxPool2d(Size2d kernel_size, const MaxPool2dOptions& options = {})
      : kernel(kernel_size),
        stride(options.stride.value_or(kernel_size)),
        padding(options.padding) {
    check<ValueError>(kernel.height >= 1 && kernel.width >= 1,
                      "MaxPool2d: expected a kernel of at least 1, got ", kernel);
    check<ValueError>(stride.height >= 1 && stride.width >= 1,
                      "MaxPool2d: expected a stride of at least 1, got ", stride);
    check<ValueError>(padding.height >= 0 && padding.height <= kernel.height / 2 &&
                          padding.width >= 0 && padding.width <= kernel.width / 2,
                      "MaxPool2d: expected a padding from 0 to half the kernel ", kernel, ", got ",
                      padding);
  }

  Tensor forward(const Tensor& x) const { return max_pool2d(x, kernel, stride, padding); }
  Tensor operator()(const Tensor& x) const { return forward(x); }

  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("kernel", self.kernel);
    visit("stride", self.stride);
    visit("padding", self.padding);
  }
};

}  // namespace lockstep::nn
