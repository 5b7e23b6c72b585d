// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <vector>

namespace lockstep::detail {

// Gives all ranks one rank's values of tensors, in one message per dtype, so that many small
// buffers cost little more than one. It keeps the packing memory between calls.
//
// Threads: one at a time.
class CoalescedBroadcast {
 public:
  // 250 MiB, as in torch.
  static constexpr std::size_t kBufferSize = std::size_t{250} << 20;

  // The tensors must be on one device and agree in number, shapes and dtypes on every rank. Returns
  // when they have the root's values, on the current stream.
  void run(const distributed::ProcessGroup& group, const std::vector<Tensor>& tensors, int root);

 private:
  std::vector<Tensor> flat_;
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/ddp/impl/distributed_buffers.ipp>
#endif
