// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/stream.hpp>
#include <lockstep/parallel/comm/buffers.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/recycled.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/storage.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::comm::detail {

// A part of a flat buffer as a variable of its own: it shares the memory, not the version. Its
// handle on the storage is counted apart from those of the other parts, so that whoever holds the
// only one may take the part over (is_sole_owner); the memory goes when all parts have gone.
inline Tensor carve(const Tensor& flat, std::int64_t offset, const Shape& shape) {
  Tensor part = lockstep::detail::make_view(flat, shape, contiguous_strides(shape), offset);
  auto& storage = part.impl()->storage;
  using Handle = std::shared_ptr<lockstep::detail::Storage>;
  auto* const memory = storage.get();
  storage = {lockstep::detail::make_recycled<Handle>(std::move(storage)), memory};
  part.impl()->version = lockstep::detail::make_recycled<lockstep::detail::VersionCounter>();
  return part;
}

// The places of several tensors of one dtype in a flat buffer, each aligned as a tensor of its own
// would be. In elements.
struct FlatLayout {
  std::vector<std::int64_t> offsets;
  std::int64_t total = 0;

  FlatLayout(const std::vector<Tensor>& tensors, const std::vector<std::size_t>& members) {
    offsets.reserve(members.size());
    for (const std::size_t member : members) {
      const auto unit =
          static_cast<std::int64_t>(kAlignment / element_size(tensors[member].dtype()));
      offsets.push_back(total);
      total += (tensors[member].numel() + unit - 1) / unit * unit;
    }
  }

  static constexpr std::size_t kAlignment = 64;
};

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

// One buffer on `stream` for each group, in which the group's members get their parts.
inline FlatCopies allocate_groups(const Stream& stream, const std::vector<Tensor>& tensors,
                                  const Groups& groups) {
  FlatCopies copies;
  copies.parts.resize(tensors.size());
  for (const auto& group : groups) {
    const FlatLayout layout(tensors, group);
    const Tensor flat =
        lockstep::detail::empty_on(stream, {layout.total}, tensors[group[0]].dtype());
    for (std::size_t m = 0; m < group.size(); ++m) {
      copies.parts[group[m]] = carve(flat, layout.offsets[m], tensors[group[m]].sizes());
    }
    copies.buffers.push_back(flat);
  }
  return copies;
}

}  // namespace lockstep::comm::detail
