// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/parallel/comm/detail/buffers.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep::comm::detail {

LOCKSTEP_INLINE Grouping::Group& Grouping::open(Dtype dtype, Device device) {
  for (Group& group : open_) {
    if (group.dtype == dtype && group.device == device) return group;
  }
  return open_.emplace_back(Group{.dtype = dtype, .device = device});
}

LOCKSTEP_INLINE void Grouping::close(Group& group) {
  closed_.push_back(std::exchange(group.members, {}));
  group.bytes = 0;
  ++group.closed;
}

LOCKSTEP_INLINE Groups Grouping::finish() && {
  for (Group& group : open_) {
    if (!group.members.empty()) closed_.push_back(std::move(group.members));
  }
  return std::move(closed_);
}

LOCKSTEP_INLINE Groups by_first_member(Groups groups) {
  std::sort(groups.begin(), groups.end(),
            [](const auto& a, const auto& b) { return a.front() < b.front(); });
  return groups;
}

LOCKSTEP_INLINE Groups buffer_groups(const std::vector<Tensor>& tensors, std::size_t buffer_size) {
  Grouping groups;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    Grouping::Group& group = groups.open(tensors[i].dtype());
    group.members.push_back(i);
    group.bytes += bytes_of(tensors[i]);
    if (group.bytes >= buffer_size) groups.close(group);
  }
  return by_first_member(std::move(groups).finish());
}

LOCKSTEP_INLINE Groups take_tensors(const std::vector<Tensor>& tensors, std::size_t size_limit) {
  Grouping groups;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::size_t bytes = bytes_of(tensors[i]);
    Grouping::Group& group = groups.open(tensors[i].dtype());
    if (group.bytes > 0 && group.bytes + bytes > size_limit) groups.close(group);
    group.members.push_back(i);
    group.bytes += bytes;
  }
  return std::move(groups).finish();
}

}  // namespace lockstep::comm::detail
