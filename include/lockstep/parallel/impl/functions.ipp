// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/parallel/comm/reduce_add.hpp>
#include <lockstep/parallel/functions.hpp>
#include <lockstep/parallel/tensor_traits.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/sparse_sum.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::functions::detail {

LOCKSTEP_INLINE std::vector<Tensor> flattened(std::vector<std::vector<Tensor>> copies) {
  std::vector<Tensor> flat;
  flat.reserve(copies.size() * copies[0].size());
  for (auto& of_device : copies) {
    for (Tensor& copy : of_device) flat.push_back(std::move(copy));
  }
  return flat;
}

}  // namespace lockstep::functions::detail

namespace lockstep::functions {

LOCKSTEP_INLINE std::vector<Tensor> Scatter::forward(const Tensor& input) {
  std::vector<Tensor> chunks = comm::scatter(input, devices, chunk_sizes, dim);
  input_device = input.device();
  options = input.options();
  shapes.reserve(chunks.size());
  for (const Tensor& chunk : chunks) shapes.push_back(chunk.sizes());
  return chunks;
}

LOCKSTEP_INLINE Tensor Gather::forward(const std::vector<Tensor>& inputs) {
  Tensor result = comm::gather(inputs, dim, device);
  scalars = inputs[0].dim() == 0;
  input_devices.reserve(inputs.size());
  sizes.reserve(inputs.size());
  for (const Tensor& input : inputs) {
    input_devices.push_back(input.device());
    sizes.push_back(scalars ? 1 : input.size(dim));
  }
  return result;
}

LOCKSTEP_INLINE std::vector<Tensor> Broadcast::forward(const std::vector<Tensor>& tensors) {
  source_device = tensors.empty() ? Device() : tensors[0].device();
  if (copies.empty()) copies = detail::flattened(comm::broadcast_coalesced(tensors, devices));
  for (Tensor& copy : copies) copy = lockstep::detail::make_view(copy);
  return std::move(copies);
}

LOCKSTEP_INLINE std::vector<Tensor> ReduceAddCoalesced::add(std::vector<Tensor> flat,
                                                            const std::vector<Device>& devices,
                                                            Device destination) {
  check<ValueError>(!devices.empty() && flat.size() % devices.size() == 0, name,
                    ": expected as many tensors of each of at least one device, got ", flat.size(),
                    " tensors and ", devices.size(), " devices");
  const std::size_t count = flat.size() / devices.size();
  std::vector<Tensor> sums(count);
  std::vector<Tensor> parts;  // the summands of each sum, side by side
  std::vector<comm::detail::Summands> summands(count);
  parts.reserve(flat.size());
  for (std::size_t j = 0; j < count; ++j) {
    const std::size_t first = parts.size();
    bool on_destination = false;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      Tensor& part = flat[i * count + j];
      if (!part.defined()) continue;
      on_destination = on_destination || part.device() == destination;
      parts.push_back(std::move(part));
    }
    if (parts.size() == first) continue;
    if (!on_destination) {
      Tensor& moved = parts[first];
      moved = moved.is_sparse() ? lockstep::detail::concatenated({moved}, destination)
                                : comm::broadcast(moved, {destination})[0];
    }
    if (parts.size() == first + 1) {
      sums[j] = std::move(parts.back());
      parts.pop_back();
      continue;
    }
    summands[j] = std::span(parts).subspan(first);
    comm::detail::check_summands(name, summands[j], destination);
  }
  comm::detail::sum_lists(sums, std::move(summands), destination, comm::kDefaultBufferSize,
                          /*takes_over=*/true);
  return sums;
}

LOCKSTEP_INLINE Tensor Scatter::backward(const Backward&, std::vector<Tensor> grads) const {
  for (std::size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) {
      grads[i] = zeros(shapes[i], {.dtype = options.dtype, .device = devices[i]});
    }
  }
  return lockstep::apply(Gather{.device = input_device, .dim = dim}, grads);
}

LOCKSTEP_INLINE std::vector<Tensor> Gather::backward(const Backward&, const Tensor& grad) const {
  std::vector<Tensor> grads =
      tensor_traits<Tensor>::scatter(grad, input_devices, sizes, scalars ? 0 : dim);
  if (scalars) {
    for (Tensor& each : grads) each = each.reshape({});
  }
  return grads;
}

LOCKSTEP_INLINE std::vector<Tensor> Broadcast::backward(const Backward&,
                                                        std::vector<Tensor> grads) const {
  if (!lockstep::detail::any_of(grads, lockstep::detail::is_recorded)) {
    return ReduceAddCoalesced::add(std::move(grads), devices, source_device);
  }
  return lockstep::apply(ReduceAddCoalesced{devices, source_device}, grads);
}

// The gradient of a sum is the sum's gradient, on each device that a summand was on.
LOCKSTEP_INLINE std::vector<Tensor> ReduceAddCoalesced::backward(const Backward& context,
                                                                 std::vector<Tensor> grads) const {
  std::vector<Tensor> present;
  std::vector<std::size_t> indices;
  for (std::size_t j = 0; j < grads.size(); ++j) {
    if (!grads[j].defined()) continue;
    present.push_back(grads[j]);
    indices.push_back(j);
  }
  std::vector<Tensor> flat(devices.size() * grads.size());
  const std::vector<Tensor> copies = lockstep::apply(Broadcast{devices}, present);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    for (std::size_t p = 0; p < indices.size(); ++p) {
      const std::size_t at = i * grads.size() + indices[p];
      if (context.needs(at)) flat[at] = copies[i * indices.size() + p];
    }
  }
  return flat;
}

}  // namespace lockstep::functions
