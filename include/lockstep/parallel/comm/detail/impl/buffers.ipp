// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/parallel/comm/detail/buffers.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/recycled.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/storage.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::comm::detail {

// Groups tensors by kind (dtype and device). Each kind has one open group, to which the caller adds
// tensors until it closes it.
class Grouping {
 public:
  struct Group {
    Dtype dtype;
    Device device;
    std::vector<std::size_t> members = {};
    std::size_t bytes = 0;
    std::size_t closed = 0;  // the number of closed groups of this kind
  };

  Group& open(Dtype dtype, Device device = {}) {
    for (Group& group : open_) {
      if (group.dtype == dtype && group.device == device) return group;
    }
    return open_.emplace_back(Group{.dtype = dtype, .device = device});
  }

  void close(Group& group) {
    closed_.push_back(std::exchange(group.members, {}));
    group.bytes = 0;
    ++group.closed;
  }
  // Adds a closed group of this tensor alone.
  void add_alone(std::size_t tensor) { closed_.push_back({tensor}); }

  // All groups: closed ones in the order in which they were closed, then open ones in the order in
  // which their kinds were first met.
  Groups finish() && {
    for (Group& group : open_) {
      if (!group.members.empty()) closed_.push_back(std::move(group.members));
    }
    return std::move(closed_);
  }

 private:
  Groups closed_;
  std::vector<Group> open_;
};

LOCKSTEP_INLINE Groups buffer_groups(const std::vector<Tensor>& tensors,
                                     const std::vector<std::size_t>& limits,
                                     const std::vector<bool>& alone,
                                     const std::vector<std::size_t>& numbers) {
  Grouping groups;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::size_t number = numbers.empty() ? i : numbers[i];
    if (!alone.empty() && alone[i]) {
      groups.add_alone(number);
      continue;
    }
    Grouping::Group& group = groups.open(tensors[i].dtype(), tensors[i].device());
    group.members.push_back(number);
    group.bytes += lockstep::detail::bytes_of(tensors[i]);
    if (group.bytes >= limits[std::min(group.closed, limits.size() - 1)]) groups.close(group);
  }
  Groups all = std::move(groups).finish();
  if (numbers.empty()) {
    std::sort(all.begin(), all.end(),
              [](const auto& a, const auto& b) { return a.front() < b.front(); });
  }
  return all;
}

LOCKSTEP_INLINE Groups take_tensors(const std::vector<Tensor>& tensors, std::size_t size_limit) {
  Grouping groups;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::size_t bytes = lockstep::detail::bytes_of(tensors[i]);
    Grouping::Group& group = groups.open(tensors[i].dtype());
    if (group.bytes > 0 && group.bytes + bytes > size_limit) groups.close(group);
    group.members.push_back(i);
    group.bytes += bytes;
  }
  return std::move(groups).finish();
}

LOCKSTEP_INLINE FlatLayout::FlatLayout(const std::vector<Tensor>& tensors,
                                       const std::vector<std::size_t>& members) {
  offsets.reserve(members.size());
  for (const std::size_t member : members) {
    const auto unit = static_cast<std::int64_t>(kAlignment / element_size(tensors[member].dtype()));
    offsets.push_back(total);
    total += (tensors[member].numel() + unit - 1) / unit * unit;
  }
}

// A part of a flat buffer as a tensor with its own version. Its storage handle is counted apart
// from the other parts', so that the part's only owner may reuse its memory (is_sole_owner); the
// buffer is freed with its last part.
inline Tensor part_of_flat(const Tensor& flat, std::int64_t offset, const Shape& shape) {
  Tensor part = lockstep::detail::make_view(flat, shape, contiguous_strides(shape), offset);
  auto& storage = part.impl()->storage;
  using Handle = std::shared_ptr<lockstep::detail::Storage>;
  auto* const memory = storage.get();
  storage = {lockstep::detail::make_recycled<Handle>(std::move(storage)), memory};
  part.impl()->version = lockstep::detail::make_recycled<lockstep::detail::VersionCounter>();
  return part;
}

LOCKSTEP_INLINE FlatCopies allocate_groups(const Stream& stream, const std::vector<Tensor>& tensors,
                                           const Groups& groups) {
  FlatCopies copies;
  copies.parts.resize(tensors.size());
  for (const auto& group : groups) {
    const FlatLayout layout(tensors, group);
    const Tensor flat =
        lockstep::detail::empty_on(stream, {layout.total}, tensors[group[0]].dtype());
    for (std::size_t m = 0; m < group.size(); ++m) {
      copies.parts[group[m]] = part_of_flat(flat, layout.offsets[m], tensors[group[m]].sizes());
    }
    copies.buffers.push_back(flat);
  }
  return copies;
}

}  // namespace lockstep::comm::detail
