// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/comm.hpp>
#include <lockstep/parallel/split.hpp>
#include <lockstep/torch/device.hpp>
#include <lockstep/torch/node.hpp>
#include <lockstep/torch/tensor_traits.hpp>

#include <torch/torch.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

// The collectives without derivatives for LibTorch's tensors. They do what parallel/comm.hpp says,
// but all host devices share LibTorch's memory, so a chunk there is a view.
//
// **Torch counterpart.** torch::cuda::scatter, gather, broadcast, which refuse CPUs.
// **Devices and streams.** LibTorch's current streams.
// **Threads and exceptions.** Any thread. A ValueError, IndexError, ShapeError, DtypeError or
// DeviceError as for lockstep's tensors.
namespace lockstep::comm {

inline std::vector<at::Tensor> scatter(const at::Tensor& tensor, const std::vector<Device>& devices,
                                       const std::vector<std::int64_t>& chunk_sizes = {},
                                       std::int64_t dim = 0) {
  const at::NoGradGuard guard;
  check<ValueError>(!devices.empty(), "Expected at least one device to scatter to");
  check<ShapeError>(tensor.dim() > 0, "scatter: a tensor without dimensions cannot be split");
  const std::int64_t rows = tensor_traits<at::Tensor>::size(tensor, dim);
  const auto sizes = split_sizes(rows, devices.size(),
                                 chunk_sizes.empty() ? Split::chunk : Split::sizes(chunk_sizes));
  return tensor_traits<at::Tensor>::scatter(tensor, devices, sizes, dim);
}

// The result is on `destination`, by default the first tensor's device.
inline at::Tensor gather(const std::vector<at::Tensor>& tensors, std::int64_t dim = 0,
                         std::optional<Device> destination = {}) {
  const at::NoGradGuard guard;
  check<ValueError>(!tensors.empty(), "gather: there are no tensors");
  const Device device = destination ? *destination : tensor_traits<at::Tensor>::device(tensors[0]);
  return tensor_traits<at::Tensor>::gather(tensors, device, dim);
}

inline std::vector<at::Tensor> broadcast(const at::Tensor& tensor,
                                         const std::vector<Device>& devices) {
  const at::NoGradGuard guard;
  check<ValueError>(!devices.empty(), "Expected at least one device to broadcast to");
  return tensor_traits<at::Tensor>::broadcast(tensor, devices);
}

inline std::vector<std::vector<at::Tensor>> broadcast_coalesced(
    const std::vector<at::Tensor>& tensors, const std::vector<Device>& devices) {
  std::vector<std::vector<at::Tensor>> copies(devices.size());
  for (const at::Tensor& tensor : tensors) {
    std::vector<at::Tensor> of_tensor = broadcast(tensor, devices);
    for (std::size_t i = 0; i < devices.size(); ++i) copies[i].push_back(std::move(of_tensor[i]));
  }
  return copies;
}

// Adds in the given order. The sum is a new tensor on `destination`, which must be an input's
// device, and is the first input's by default.
inline at::Tensor reduce_add(const std::vector<at::Tensor>& inputs,
                             std::optional<Device> destination = {}) {
  using Traits = tensor_traits<at::Tensor>;
  const at::NoGradGuard guard;
  check<ValueError>(!inputs.empty(), "reduce_add: there are no inputs");
  const Device device = destination ? *destination : Traits::device(inputs[0]);
  const auto is_there = [device](const at::Tensor& input) { return Traits::is_on(input, device); };
  check<DeviceError>(std::any_of(inputs.begin(), inputs.end(), is_there),
                     "reduce_add expects destination to be on the same GPU with one of the "
                     "tensors, but none is on ",
                     device);
  at::Tensor sum;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check<ShapeError>(inputs[i].sizes() == inputs[0].sizes(), "reduce_add: input ", i,
                      " has invalid size: got ", inputs[i].sizes(), ", but expected ",
                      inputs[0].sizes());
    check<DtypeError>(inputs[i].scalar_type() == inputs[0].scalar_type(), "reduce_add: input ", i,
                      " is ", inputs[i].scalar_type(), ", but input 0 is ",
                      inputs[0].scalar_type());
    const at::Tensor here = libtorch::detail::moved(inputs[i], device);
    sum = sum.defined() ? libtorch::detail::added(std::move(sum), here) : here.clone();
  }
  return sum;
}

// inputs[i][j] is tensor j of device i. Entry j of the result is the sum of inputs[i][j] over all
// i.
inline std::vector<at::Tensor> reduce_add_coalesced(
    const std::vector<std::vector<at::Tensor>>& inputs, std::optional<Device> destination = {}) {
  check<ValueError>(!inputs.empty(), "reduce_add_coalesced: there are no inputs");
  for (const auto& of_device : inputs) {
    check<ValueError>(of_device.size() == inputs[0].size(),
                      "reduce_add_coalesced: ", of_device.size(), " tensors on one device, but ",
                      inputs[0].size(), " on the first");
  }
  std::vector<at::Tensor> sums;
  for (std::size_t j = 0; j < inputs[0].size(); ++j) {
    std::vector<at::Tensor> summands;
    for (const auto& of_device : inputs) summands.push_back(of_device[j]);
    sums.push_back(reduce_add(summands, destination));
  }
  return sums;
}

}  // namespace lockstep::comm
