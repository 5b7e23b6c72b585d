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

// Makes `flat` a tensor of so many elements, unless it is.
inline void fit(Tensor& flat, std::int64_t elements, const TensorOptions& options) {
  if (flat.defined() && flat.numel() == elements && flat.dtype() == options.dtype &&
      flat.device() == options.device) {
    return;
  }
  flat = empty({elements}, options);
}

// The part of a flat tensor for values like those of `like`.
inline Tensor part_for(const Tensor& flat, std::int64_t offset, const Tensor& like) {
  return make_view(flat, like.sizes(), contiguous_strides(like.sizes()),
                   flat.impl()->offset + offset);
}

LOCKSTEP_INLINE void CoalescedBroadcast::run(const distributed::ProcessGroup& group,
                                             const std::vector<Tensor>& tensors, int root) {
  const comm::detail::Groups groups = comm::detail::buffer_groups(tensors, {kBufferSize});
  flat_.resize(groups.size());
  std::vector<distributed::Work> works;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].size() == 1) {
      works.push_back(group.broadcast(tensors[groups[g][0]], root));
      continue;
    }
    const comm::detail::FlatLayout layout(tensors, groups[g]);
    fit(flat_[g], layout.total, tensors[groups[g][0]].options());
    if (group.rank() == root) {
      for (std::size_t m = 0; m < groups[g].size(); ++m) {
        const Tensor& tensor = tensors[groups[g][m]];
        copy_into(part_for(flat_[g], layout.offsets[m], tensor), tensor);
      }
    }
    works.push_back(group.broadcast(flat_[g], root));
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    works[g].wait();
    if (groups[g].size() == 1 || group.rank() == root) continue;
    const comm::detail::FlatLayout layout(tensors, groups[g]);
    for (std::size_t m = 0; m < groups[g].size(); ++m) {
      const Tensor& tensor = tensors[groups[g][m]];
      copy_into(tensor, part_for(flat_[g], layout.offsets[m], tensor));
    }
  }
}

}  // namespace lockstep::detail
