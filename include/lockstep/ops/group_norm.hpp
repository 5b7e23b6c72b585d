// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

namespace lockstep {

// (x − mean) / √(var + eps) · weight + bias for x [batch, channels, …], with the mean and variance
// of each group of neighbouring channels in each element of the batch. weight and bias [channels]
// are a number for each channel, or undefined. A group of one value gives the bias.
//
// **Torch counterpart.** torch.nn.functional.group_norm.
// **Devices and streams.** All tensors are on one device. Half precision and autocast as in
// layer_norm.
// **Backward.** Gradients of x, weight and bias; derivatives of any order.
// **Threads and exceptions.** A ValueError if the channels cannot be divided into `num_groups`. A
// ShapeError, DtypeError or DeviceError names what does not match.
// **Example.** `group_norm(images, 8)` for images of [batch, 32, height, width].
Tensor group_norm(const Tensor& x, std::int64_t num_groups, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/group_norm.ipp>
#endif
