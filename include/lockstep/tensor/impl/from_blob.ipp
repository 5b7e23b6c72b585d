// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/lent_memory.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/autograd_state.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/from_blob.hpp>
#include <lockstep/tensor/recycled.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/storage.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

namespace lockstep::detail {

// The bytes from the first to the last element of a layout with elements.
LOCKSTEP_INLINE std::size_t lent_bytes(const char* operation, const Shape& shape,
                                       const Shape& strides, Dtype dtype) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 16;
  std::int64_t last = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    check<ValueError>(strides[d] >= 0, operation, ": expected no negative stride, got strides ",
                      strides, " for shape ", shape, ": make it contiguous first");
    std::int64_t step = 0;
    const bool overflows = __builtin_mul_overflow(shape[d] - 1, strides[d], &step) ||
                           __builtin_add_overflow(last, step, &last);
    check<ShapeError>(!overflows && last < kMost, operation, ": shape ", shape, " with strides ",
                      strides, " reaches further than memory does");
  }
  return static_cast<std::size_t>(last + 1) * element_size(dtype);
}

LOCKSTEP_INLINE void check_lent(const char* operation, const void* data, std::int64_t count,
                                Dtype dtype, Device device) {
  check<ValueError>(data != nullptr || count == 0, operation, ": expected memory for ", count,
                    " elements of ", dtype, ", got a null pointer");
  check<ValueError>(reinterpret_cast<std::uintptr_t>(data) % element_size(dtype) == 0, operation,
                    ": expected memory aligned to ", element_size(dtype), " bytes for elements of ",
                    dtype, ", got ", data);
  Backend& backend = backend_of(device);
  if (count == 0) return;
  const std::string instead = backend.misplaced(data, device);
  check<DeviceError>(instead.empty(), operation, ": expected memory of ", device, ", got ", instead,
                     " at ", data);
}

LOCKSTEP_INLINE Tensor lend(const char* operation, void* data, const Shape& shape,
                            BlobOptions options) {
  check_not_forked();
  auto impl = make_recycled<TensorImpl>();
  impl->numel = numel(shape);
  impl->shape = shape;
  impl->dtype = options.dtype.value_or(Dtype::f32);
  impl->strides = options.strides.empty() ? contiguous_strides(shape) : options.strides;
  check<ShapeError>(impl->strides.size() == shape.size(), operation, ": expected ", shape.size(),
                    " strides for shape ", shape, ", got ", impl->strides);
  const std::size_t bytes =
      impl->numel == 0 ? 0 : lent_bytes(operation, shape, impl->strides, impl->dtype);
  check_lent(operation, data, impl->numel, impl->dtype, options.device);
  check<ValueError>(!options.deleter || !options.owner, operation,
                    ": expected a deleter or an owner, got both");
  check<DtypeError>(!options.requires_grad || is_floating_point(impl->dtype), operation,
                    ": only tensors of floating-point dtype can require gradients, not ",
                    impl->dtype);
  impl->contiguous = impl->numel == 0 || strides_are_contiguous(shape, impl->strides);
  impl->inference = autograd_state().inference;
  impl->requires_grad = options.requires_grad;

  const Stream stream = current_stream(options.device);
  LentMemory::Deleter deleter = std::move(options.deleter);
  if (options.owner) deleter = [owner = std::move(options.owner)](void*) {};
  auto lent = deleter ? std::make_unique<LentMemory>(std::move(deleter)) : nullptr;
  BlockOwner& owner = lent ? static_cast<BlockOwner&>(*lent) : LentMemory::unowned();
  impl->storage = make_recycled<Storage>(data, bytes, stream, owner);
  (void)lent.release();  // the storage gives it back
  impl->version = {std::shared_ptr<VersionCounter>(), &impl->storage->version};
  return Tensor(std::move(impl));
}

}  // namespace lockstep::detail
