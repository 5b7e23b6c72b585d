// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/memory_stats.hpp>
#include <lockstep/config.hpp>
#include <lockstep/scoped_value.hpp>
#include <lockstep/tensor/storage.hpp>
#include <lockstep/tensor/tensor.hpp>

// Page-locked host memory, which a GPU's copy engine accesses while the program goes on. A copy to
// a GPU from other host memory goes through the processor first, and the caller waits.
//
// Without a GPU ordinary memory takes its place, without an error (torch raises). Freed page-locked
// memory is kept and reused like other memory; `empty_cache("cpu")` returns it to the system.
namespace lockstep {

// While it lives, tensors that this thread makes on plain `cpu` have page-locked memory, if there
// is a GPU.
//
// **Torch counterpart.** The `pin_memory` of torch.empty and of DataLoader.
// **Devices and streams.** Like other memory, a block is reused only after the work that was issued
// to its recorded streams.
// **Threads and exceptions.** The guard applies to the thread that makes it, which must destroy it;
// guards nest. Making a tensor is an Error if the machine has no page-locked memory left.
// **Example.**
//   const ls::PinMemoryGuard pinned;
//   ls::Tensor batch = ls::empty({64, 784});
struct PinMemoryGuard : detail::ScopedValue<bool> {
  explicit PinMemoryGuard(bool on = true) : ScopedValue(detail::pin_memory_wanted(), on) {}
};

// Statistics of this process's page-locked memory; all zeros without a GPU. `memory_stats("cpu")`
// counts ordinary memory only.
//
// **Torch counterpart.** torch.cuda.host_memory_stats.
MemoryStats pinned_memory_stats();

inline Tensor pin_memory(const Tensor& tensor) { return tensor.pin_memory(); }

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/tensor/impl/pin_memory.ipp>
#endif
