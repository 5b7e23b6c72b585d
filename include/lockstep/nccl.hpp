// SPDX-License-Identifier: Apache-2.0
#pragma once

// NCCL for what goes to, or comes from, all GPUs of a set at once: broadcast and reduce_add, and so
// the parameters and gradients of DataParallel. One file of a program that has the CUDA side
// (lockstep/cuda.hpp) includes this header, too, and the program links NCCL; any compiler takes it.
// Where devices share a GPU or are none, and in a program without this header, copies and adds do
// the same.

#include <lockstep/backend/collectives.hpp>
#include <lockstep/cuda/nccl/nccl_collectives.hpp>

#include <atomic>

namespace lockstep::cuda {

// Puts NCCL into its place. Nothing of it is started before its first use.
inline bool register_nccl() {
  lockstep::detail::nccl_collectives.store(&NcclCollectives::instance(), std::memory_order_release);
  return true;
}

inline const bool nccl_registered = register_nccl();

}  // namespace lockstep::cuda
