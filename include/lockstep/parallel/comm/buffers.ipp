// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/parallel/comm/buffers.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace lockstep::comm::detail {

LOCKSTEP_INLINE std::size_t bytes_of(const Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel()) * element_size(tensor.dtype());
}

LOCKSTEP_INLINE Groups buffer_groups(const std::vector<Tensor>& tensors, std::size_t buffer_size) {
  Groups groups;
  struct Open {
    std::size_t group;
    std::size_t bytes;
  };
  std::map<Dtype, Open> open;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Dtype dtype = tensors[i].dtype();
    auto found = open.find(dtype);
    if (found == open.end()) {
      found = open.emplace(dtype, Open{groups.size(), 0}).first;
      groups.emplace_back();
    }
    groups[found->second.group].push_back(i);
    found->second.bytes += bytes_of(tensors[i]);
    if (found->second.bytes >= buffer_size) open.erase(found);
  }
  return groups;
}

LOCKSTEP_INLINE Groups take_tensors(const std::vector<Tensor>& tensors, std::size_t size_limit) {
  struct Open {
    Dtype dtype;
    std::vector<std::size_t> members;
    std::size_t bytes;
  };
  Groups groups;
  std::vector<Open> open;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Dtype dtype = tensors[i].dtype();
    const std::size_t bytes = bytes_of(tensors[i]);
    auto group = open.begin();
    while (group != open.end() && group->dtype != dtype) ++group;
    if (group == open.end()) group = open.insert(open.end(), {dtype, {}, 0});
    if (group->bytes > 0 && group->bytes + bytes > size_limit) {
      groups.push_back(std::exchange(group->members, {}));
      group->bytes = 0;
    }
    group->members.push_back(i);
    group->bytes += bytes;
  }
  for (Open& group : open) groups.push_back(std::move(group.members));
  return groups;
}

}  // namespace lockstep::comm::detail
