// SPDX-License-Identifier: Apache-2.0
#pragma once

// Lets NCCL carry what goes to, or comes from, all GPUs of a set at once: broadcast and reduce_add,
// and so the parameters and gradients of DataParallel; the collectives of ranks that are threads,
// within distributed::run; and those of groups of processes, a GPU each (nccl::init_process_group).
// One file of a program that has the CUDA side (lockstep/cuda.hpp) includes this header, too, and
// the program links NCCL; any compiler takes it. The library uses copies and additions instead
// where devices of one process share a GPU or are host devices, and in a program without this
// header.

#include <lockstep/cuda/nccl/nccl_collectives.hpp>
#include <lockstep/cuda/nccl/process_group.hpp>
#include <lockstep/distributed/thread/gpu_collectives.hpp>

#include <atomic>

namespace lockstep::cuda {

// Registers NCCL, which starts at its first use.
inline const bool nccl_registered = [] {
  distributed::detail::nccl_collectives.store(&NcclCollectives::instance(),
                                              std::memory_order_release);
  return true;
}();

}  // namespace lockstep::cuda
