// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/ops/size2d.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

namespace lockstep {

namespace detail {

// Throws a ValueError unless they are as a convolution needs them.
void check_conv_sizes(const char* name, Size2d stride, Size2d padding, Size2d dilation);

}  // namespace detail

// The cross-correlation of images [batch, channels, height, width] (or one image without the batch)
// with kernels [out, channels / groups, kernel height, kernel width], plus a bias [out] if there is
// one. Padding is with zeros. With groups the channels are divided: each group of output channels
// sees one group of input channels alone. As many groups as channels are a depthwise convolution.
//
// **Torch counterpart.** torch.nn.functional.conv2d.
// **Devices and streams.** The operands' current stream. On the host groups of one output channel
// are plain loops; f32 of at least 64 terms, where the machine's vectors fit the sizes and padded
// images are not nearly all padding, sums of tiles in registers, in one thread; all else im2col and
// a BLAS, a few images at a time. On a GPU it is one of cuDNN's deterministic algorithms. The work
// space comes from the device's memory. Half precision is computed in f32, and the result rounded
// once.
// **Backward.** Bit for bit the same every time; derivatives of any order.
// **Threads and exceptions.** A ShapeError, DtypeError or DeviceError that names the two operands
// that do not fit; all are of one floating-point dtype, unless autocast is on.
// **Example.** `conv2d(randn({64, 1, 28, 28}), randn({32, 1, 5, 5}))` is of shape [64, 32, 24, 24].
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Size2d stride = 1,
              Size2d padding = 0, Size2d dilation = 1, std::int64_t groups = 1);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/conv.ipp>
#endif
