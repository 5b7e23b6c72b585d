// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/work.hpp>
#include <lockstep/parallel/comm/detail/buffers.hpp>
#include <lockstep/parallel/ddp/distributed_buffers.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <vector>

namespace lockstep::detail {

// Calls `visit(part, tensor)` for each tensor and its part of the flat one, without gaps: if a
// rank's tensors have more elements than another's, its flat one is longer, which the group
// notices.
template <class Visit>
void for_each_part(const Tensor& flat, const std::vector<Tensor>& tensors,
                   const std::vector<std::size_t>& members, const Visit& visit) {
  std::int64_t offset = flat.impl()->offset;
  for (const std::size_t member : members) {
    const Tensor& tensor = tensors[member];
    visit(make_view(flat, tensor.sizes(), contiguous_strides(tensor.sizes()), offset), tensor);
    offset += tensor.numel();
  }
}

LOCKSTEP_INLINE void CoalescedBroadcast::run(const distributed::ProcessGroup& group,
                                             const std::vector<Tensor>& tensors, int root) {
  const comm::detail::Groups groups = comm::detail::buffer_groups(tensors, {kBufferSize});
  flat_.resize(groups.size());
  std::vector<distributed::Work> works;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const Tensor& first = tensors[groups[g][0]];
    if (groups[g].size() == 1) {
      works.push_back(group.broadcast(first, root));
      continue;
    }
    std::int64_t elements = 0;
    for (const std::size_t member : groups[g]) elements += tensors[member].numel();
    Tensor& flat = flat_[g];
    if (!flat.defined() || flat.numel() != elements || flat.dtype() != first.dtype() ||
        flat.device() != first.device()) {
      flat = empty({elements}, first.options());
    }
    if (group.rank() == root) {
      for_each_part(flat, tensors, groups[g],
                    [](const Tensor& part, const Tensor& tensor) { copy_into(part, tensor); });
    }
    works.push_back(group.broadcast(flat, root));
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    works[g].wait();
    if (groups[g].size() == 1 || group.rank() == root) continue;
    for_each_part(flat_[g], tensors, groups[g],
                  [](const Tensor& part, const Tensor& tensor) { copy_into(tensor, part); });
  }
}

}  // namespace lockstep::detail
