// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>

namespace lockstep {

namespace detail {

Tensor empty_on(const Stream& stream, const Shape& shape, Dtype dtype);

}  // namespace detail

// A tensor with uninitialised elements.
//
// **Torch counterpart.** torch::empty.
// **Devices and streams.** The memory belongs to the current stream of the device.
Tensor empty(const Shape& shape, const TensorOptions& options = {});
template <std::same_as<Dtype> D>
Tensor empty(const Shape& shape, D dtype) {
  return empty(shape, TensorOptions{.dtype = dtype});
}

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/tensor/impl/empty.ipp>
#endif
