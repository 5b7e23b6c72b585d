// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <vector>

namespace lockstep::detail {

// Gives all ranks one rank's values of tensors: those of one dtype in one message, so that the many
// small buffers of a module cost little more than one.
//
// It keeps the memory that they are packed into from one call to the next.
//
// Threads: one at a time.
class CoalescedBroadcast {
 public:
  // 250 MiB, as torch has it.
  static constexpr std::size_t kBufferSize = std::size_t{250} << 20;

  // The tensors are on one device, and as many, of the same shapes and dtypes, on every rank.
  // Returns when they have the root's values, on the current stream.
  void run(const distributed::ProcessGroup& group, const std::vector<Tensor>& tensors, int root);

 private:
  std::vector<Tensor> flat_;
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/ddp/impl/distributed_buffers.ipp>
#endif
