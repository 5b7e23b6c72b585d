// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/tensor/autograd_state.hpp>
#include <lockstep/tensor/recycled.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <memory>
#include <utility>

namespace lockstep {

namespace detail {

inline Tensor empty_on(const Stream& stream, const Shape& shape, Dtype dtype) {
  auto impl = make_recycled<TensorImpl>();
  impl->numel = numel(shape);
  impl->storage =
      make_recycled<Storage>(static_cast<std::size_t>(impl->numel) * element_size(dtype), stream);
  impl->version = {std::shared_ptr<VersionCounter>(), &impl->storage->version};
  impl->shape = shape;
  impl->strides = contiguous_strides(shape);
  impl->dtype = dtype;
  impl->inference = autograd_state().inference;
  return Tensor(std::move(impl));
}

}  // namespace detail

// A tensor whose elements have no values yet.
//
// **Torch counterpart.** torch::empty.
// **Devices and streams.** The memory belongs to the current stream of the device.
inline Tensor empty(const Shape& shape, const TensorOptions& options = {}) {
  Tensor result = detail::empty_on(current_stream(options.device), shape, options.dtype);
  if (options.requires_grad) result.requires_grad_();
  return result;
}

}  // namespace lockstep
