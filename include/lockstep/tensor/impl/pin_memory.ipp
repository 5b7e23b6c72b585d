// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/memory_stats.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/autograd_state.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/pin_memory.hpp>
#include <lockstep/tensor/storage.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

LOCKSTEP_INLINE MemoryStats pinned_memory_stats() {
  detail::MemoryResource* const pinned = detail::usable_pinned_memory();
  return pinned ? pinned->memory_stats(Device()) : MemoryStats();
}

LOCKSTEP_INLINE bool Tensor::is_pinned() const { return get().storage->is_pinned(); }

LOCKSTEP_INLINE Tensor Tensor::pin_memory() const {
  check<DeviceError>(device().is_host_memory(),
                     "pin_memory: expected a tensor on cpu, but this one is on ", device());
  check<AutogradError>(!detail::autograd_state().records() || !impl_->requires_grad,
                       "pin_memory is not recorded for backward: detach the tensor first");
  if (is_pinned() || !detail::usable_pinned_memory()) return *this;
  const PinMemoryGuard guard;
  return detail::copy_as(*this, {.dtype = dtype()});
}

}  // namespace lockstep
