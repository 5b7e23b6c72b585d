// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/ops/size2d.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

namespace lockstep {

namespace detail {

// Throws a ValueError unless the sizes are valid.
void check_conv_sizes(const char* name, Size2d stride, Size2d padding, Size2d dilation);

}  // namespace detail

// The cross-correlation of images [batch, channels, height, width] (or one image without the batch)
// with kernels [out, channels / groups, kernel height, kernel width], plus a bias [out] if there is
// one. Padding is with zeros. With groups, each group of output channels sees only its group of
// input channels; as many groups as channels make a depthwise convolution.
//
// **Torch counterpart.** torch.nn.functional.conv2d.
// **Devices and streams.** The operands' current stream. A host device chooses by the sizes between
// loops and tiles of its own, in one thread, and im2col with a BLAS; a GPU uses a deterministic
// algorithm of cuDNN's. Work space comes from the device's memory. Half precision is computed in
// f32, and the result rounded once.
// **Backward.** The same bits every time; derivatives of any order.
// **Threads and exceptions.** A ShapeError, DtypeError or DeviceError names the two operands that
// do not match; all are of one floating-point dtype, unless autocast is on.
// **Example.** `conv2d(randn({64, 1, 28, 28}), randn({32, 1, 5, 5}))` is of shape [64, 32, 24, 24].
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Size2d stride = 1,
              Size2d padding = 0, Size2d dilation = 1, std::int64_t groups = 1);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/conv.ipp>
#endif
