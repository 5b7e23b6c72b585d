// SPDX-License-Identifier: Apache-2.0
#pragma once

// Makes the library use NCCL for what goes to, or comes from, all GPUs of a set at once: broadcast
// and reduce_add, and so the parameters and gradients of DataParallel; the collectives of ranks
// that are threads, within distributed::run; and those of groups of processes with a GPU each
// (nccl::init_process_group). One file of a program that has the CUDA side (lockstep/cuda.hpp)
// includes this header as well, with any compiler, and the program links NCCL. Without it, and for
// devices of one process that share a GPU or are host devices, the library uses copies and
// additions.

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
