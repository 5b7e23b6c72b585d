// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

namespace lockstep {

// (x − mean) / √(var + eps) · weight + bias of x [batch, channels, …], with mean and variance of
// each group of neighbouring channels of each element of the batch; weight and bias [channels] are
// a number for each channel, or undefined. A group of one value is its own mean: it gives the bias.
//
// **Torch counterpart.** torch.nn.functional.group_norm.
// **Devices and streams.** All on one device. A layer_norm of each group, then a pass for the
// weight and the bias; half precision and autocast as there.
// **Backward.** Into x, weight and bias, with derivatives of its own.
// **Threads and exceptions.** A ValueError if the channels cannot be divided into `num_groups`. A
// ShapeError, DtypeError or DeviceError names what does not fit.
// **Example.** `group_norm(images, 8)` for images of [batch, 32, height, width].
Tensor group_norm(const Tensor& x, std::int64_t num_groups, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/group_norm.ipp>
#endif
