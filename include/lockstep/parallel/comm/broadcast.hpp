// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/comm/transfer.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::comm {

// 10 MiB, torch's default: how much is collected into one buffer.
inline constexpr std::size_t kDefaultBufferSize = std::size_t{10} << 20;

namespace detail {

// A part of a flat buffer as a variable of its own: shares the memory, not the version.
inline Tensor carve(const Tensor& flat, std::int64_t offset, const Shape& shape) {
  Tensor part = lockstep::detail::make_view(flat, shape, contiguous_strides(shape), offset);
  part.impl()->version = std::make_shared<lockstep::detail::VersionCounter>();
  return part;
}

// The places of several tensors of one dtype in a flat buffer, each aligned as a tensor of its own
// would be. In elements.
struct FlatLayout {
  std::vector<std::int64_t> offsets;
  std::int64_t total = 0;

  FlatLayout(const std::vector<Tensor>& tensors, const std::vector<std::size_t>& members) {
    for (const std::size_t member : members) {
      const auto unit =
          static_cast<std::int64_t>(kAlignment / element_size(tensors[member].dtype()));
      offsets.push_back(total);
      total += (tensors[member].numel() + unit - 1) / unit * unit;
    }
  }

  static constexpr std::size_t kAlignment = 64;
};

// Which tensors share a buffer: those of one dtype in order, a buffer being closed once it has
// reached `buffer_size` bytes.
inline std::vector<std::vector<std::size_t>> buffer_groups(const std::vector<Tensor>& tensors,
                                                           std::size_t buffer_size) {
  std::vector<std::vector<std::size_t>> groups;
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
    found->second.bytes += static_cast<std::size_t>(tensors[i].numel()) * element_size(dtype);
    if (found->second.bytes >= buffer_size) open.erase(found);
  }
  return groups;
}

// Room on one device for copies of several tensors: each a variable of its own, lying together in
// buffers.
struct FlatCopies {
  std::vector<Tensor> parts;
  std::vector<Tensor> buffers;
};

inline FlatCopies allocate_flat(const Transfer& transfer, const std::vector<Tensor>& tensors,
                                std::size_t buffer_size) {
  FlatCopies copies;
  copies.parts.resize(tensors.size());
  for (const auto& group : buffer_groups(tensors, buffer_size)) {
    const FlatLayout layout(tensors, group);
    const Tensor flat = transfer.allocate({layout.total}, tensors[group[0]].dtype());
    for (std::size_t m = 0; m < group.size(); ++m) {
      copies.parts[group[m]] = carve(flat, layout.offsets[m], tensors[group[m]].sizes());
    }
    copies.buffers.push_back(flat);
  }
  return copies;
}

}  // namespace detail

// The tensor on each device. The first entry for the device that it is on already is the tensor
// itself, every other one a copy of its own.
//
// **Torch counterpart.** torch.nn.parallel.comm.broadcast.
// **Devices and streams.** Copied on each device's copy stream, as in scatter.
// **Backward.** None: see functions.hpp.
inline std::vector<Tensor> broadcast(const Tensor& tensor, const std::vector<Device>& devices) {
  check<ValueError>(!devices.empty(), "Expected at least one device to broadcast to");
  const Tensor source = lockstep::detail::packed(tensor);
  std::vector<Tensor> copies;
  std::vector<std::pair<detail::Transfer, std::size_t>> transfers;
  bool original_given = false;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (devices[i] == tensor.device() && !std::exchange(original_given, true)) {
      copies.push_back(tensor);
      continue;
    }
    transfers.emplace_back(detail::Transfer(devices[i]), i);
    copies.push_back(transfers.back().first.allocate(tensor.sizes(), tensor.dtype()));
    transfers.back().first.copy_out(copies[i], source, detail::whole_of(source));
  }
  for (const auto& [transfer, i] : transfers) transfer.finish(copies[i]);
  return copies;
}

// Several tensors of one device on each device, small ones collected into buffers of about
// `buffer_size` bytes. Result [i][j] is tensor j on devices[i].
//
// The first entry for the device that the tensors are on holds the tensors themselves. The copies
// of a device lie together in one buffer for each dtype, but each has a version of its own.
//
// **Torch counterpart.** torch.nn.parallel.comm.broadcast_coalesced.
// **Devices and streams.** As broadcast.
// **Backward.** None: see functions.hpp.
inline std::vector<std::vector<Tensor>> broadcast_coalesced(
    const std::vector<Tensor>& tensors, const std::vector<Device>& devices,
    std::size_t buffer_size = kDefaultBufferSize) {
  check<ValueError>(!devices.empty(), "Expected at least one device to broadcast to");
  for (std::size_t j = 1; j < tensors.size(); ++j) {
    check<DeviceError>(tensors[j].device() == tensors[0].device(), "broadcast_coalesced: tensor ",
                       j, " is on ", tensors[j].device(), ", but tensor 0 on ",
                       tensors[0].device());
  }
  std::vector<std::vector<Tensor>> copies(devices.size(), tensors);
  std::vector<std::pair<detail::Transfer, std::vector<Tensor>>> transfers;
  bool original_given = false;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (!tensors.empty() && devices[i] == tensors[0].device() &&
        !std::exchange(original_given, true)) {
      continue;
    }
    const detail::Transfer transfer(devices[i]);
    detail::FlatCopies flat = detail::allocate_flat(transfer, tensors, buffer_size);
    for (std::size_t j = 0; j < tensors.size(); ++j) {
      const Tensor source = lockstep::detail::packed(tensors[j]);
      transfer.copy_out(flat.parts[j], source, detail::whole_of(source));
    }
    copies[i] = std::move(flat.parts);
    transfers.emplace_back(transfer, std::move(flat.buffers));
  }
  for (const auto& [transfer, buffers] : transfers) {
    for (const Tensor& buffer : buffers) transfer.finish(buffer);
  }
  return copies;
}

}  // namespace lockstep::comm
