// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/memory_stats.hpp>
#include <lockstep/config.hpp>
#include <lockstep/tensor/storage.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <utility>

// Page-locked host memory: what the copy engine of a GPU reads and writes by itself, beside the
// program. A copy to a GPU from any other goes through the processor first, and its caller waits
// for that.
//
// Where there is no GPU, nothing needs it: memory is then ordinary, and none of this is an error.
// (Torch raises.) It is kept and reused as all memory is; `empty_cache("cpu")` gives it back.
namespace lockstep {

// While it lives, the memory of tensors that this thread makes on plain `cpu` is page-locked where
// there is a GPU.
//
// **Torch counterpart.** The `pin_memory` of torch.empty and of DataLoader.
// **Devices and streams.** Memory is reused once the streams that were recorded on it have come
// past it, as all memory is.
// **Threads and exceptions.** Of the thread that makes it, which destroys it, too; they nest. An
// Error where the machine has no such memory left.
// **Example.**
//   const ls::PinMemoryGuard pinned;
//   ls::Tensor batch = ls::empty({64, 784});
class PinMemoryGuard {
 public:
  explicit PinMemoryGuard(bool on = true)
      : before_(std::exchange(detail::pin_memory_wanted(), on)) {}
  PinMemoryGuard(const PinMemoryGuard&) = delete;
  PinMemoryGuard& operator=(const PinMemoryGuard&) = delete;
  ~PinMemoryGuard() { detail::pin_memory_wanted() = before_; }

 private:
  const bool before_;
};

// What page-locked memory this process has, all zeros where there is no GPU. `memory_stats("cpu")`
// has ordinary memory only.
//
// **Torch counterpart.** torch.cuda.host_memory_stats.
MemoryStats pinned_memory_stats();

inline Tensor pin_memory(const Tensor& tensor) { return tensor.pin_memory(); }

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/tensor/pin_memory.ipp>
#endif
