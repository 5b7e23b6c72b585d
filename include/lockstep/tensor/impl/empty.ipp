// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/tensor/autograd_state.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/recycled.hpp>
#include <lockstep/tensor/storage.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <memory>
#include <utility>

namespace lockstep::detail {

LOCKSTEP_INLINE Tensor empty_on(const Stream& stream, const Shape& shape, Dtype dtype) {
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

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor empty(const Shape& shape, const TensorOptions& options) {
  Tensor result = detail::empty_on(current_stream(options.device), shape, options.dtype);
  if (options.requires_grad) result.requires_grad_();
  return result;
}

}  // namespace lockstep
