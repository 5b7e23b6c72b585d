// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/comm/broadcast.hpp>
#include <lockstep/parallel/comm/detail/buffers.hpp>
#include <lockstep/parallel/comm/detail/fan_out.hpp>
#include <lockstep/parallel/comm/detail/transfer.hpp>
#include <lockstep/parallel/comm/out.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep::comm {

LOCKSTEP_INLINE std::vector<Tensor> broadcast(const Tensor& tensor,
                                              const std::vector<Device>& devices) {
  check<ValueError>(!devices.empty(), "Expected at least one device to broadcast to");
  std::vector<Tensor> copies(devices.size(), tensor);
  std::vector<detail::Transfer> transfers;
  std::vector<detail::FanOutCopy> made;
  transfers.reserve(devices.size());
  const std::size_t own = detail::first_place_of(tensor.device(), devices);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (i == own) continue;
    const detail::Transfer& transfer = transfers.emplace_back(devices[i]);
    copies[i] = transfer.allocate(tensor.sizes(), tensor.dtype());
    made.push_back({&tensor, &copies[i], &transfer});
  }
  detail::fan_out(made, devices);
  for (const detail::FanOutCopy& each : made) each.transfer->finish(*each.copy);
  return copies;
}

LOCKSTEP_INLINE std::vector<Tensor> broadcast_out(const Tensor& tensor,
                                                  const std::vector<Tensor>& outs) {
  check<ValueError>(!outs.empty(), "Expected at least one output tensor to broadcast to");
  for (std::size_t i = 0; i < outs.size(); ++i) {
    detail::check_out("broadcast_out", outs, i, tensor.sizes(), tensor.dtype(), {&tensor, 1});
  }
  const Tensor source = lockstep::detail::packed(tensor);
  std::vector<detail::OutTransfer> transfers;
  detail::CopiesTogether together;
  for (const Tensor& out : outs) {
    const detail::OutTransfer& into = transfers.emplace_back(out);
    into.transfer().copy(into.target(), source, detail::whole_of(source), together);
  }
  together.issue();
  for (const detail::OutTransfer& into : transfers) into.finish();
  return outs;
}

LOCKSTEP_INLINE std::vector<std::vector<Tensor>> broadcast_coalesced(
    const std::vector<Tensor>& tensors, const std::vector<Device>& devices,
    std::size_t buffer_size) {
  check<ValueError>(!devices.empty(), "Expected at least one device to broadcast to");
  for (std::size_t j = 1; j < tensors.size(); ++j) {
    check<DeviceError>(tensors[j].device() == tensors[0].device(), "broadcast_coalesced: tensor ",
                       j, " is on ", tensors[j].device(), ", but tensor 0 on ",
                       tensors[0].device());
  }
  std::vector<std::vector<Tensor>> copies(devices.size(), tensors);
  struct Target {
    detail::Transfer transfer;
    const std::vector<Tensor>& parts;
    std::vector<Tensor> buffers;
  };
  std::vector<Target> targets;
  const std::size_t own =
      tensors.empty() ? devices.size() : detail::first_place_of(tensors[0].device(), devices);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (i == own) continue;
    const detail::Transfer transfer(devices[i]);
    detail::FlatCopies flat = detail::allocate_groups(
        transfer.stream(), tensors, detail::buffer_groups(tensors, {buffer_size}));
    copies[i] = std::move(flat.parts);
    targets.push_back({transfer, copies[i], std::move(flat.buffers)});
  }
  std::vector<detail::FanOutCopy> made;
  made.reserve(tensors.size() * targets.size());
  for (std::size_t j = 0; j < tensors.size(); ++j) {
    for (const Target& target : targets) {
      made.push_back({&tensors[j], &target.parts[j], &target.transfer});
    }
  }
  detail::fan_out(made, devices);
  for (const Target& target : targets) target.transfer.finish(target.buffers);
  return copies;
}

}  // namespace lockstep::comm
