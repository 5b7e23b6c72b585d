// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/parallel/comm.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

// The collectives as differentiable operations: Broadcast and ReduceAddCoalesced, Scatter and
// Gather are each the other's backward, to any order. Torch's torch.nn.parallel._functions.
namespace lockstep::functions {

namespace detail {

inline std::vector<Device> devices_of(const std::vector<Tensor>& tensors) {
  std::vector<Device> devices;
  devices.reserve(tensors.size());
  for (const Tensor& tensor : tensors) devices.push_back(tensor.device());
  return devices;
}

// [device][tensor] as one list, in Broadcast's order.
inline std::vector<Tensor> flattened(std::vector<std::vector<Tensor>> copies) {
  std::vector<Tensor> flat;
  for (auto& of_device : copies) {
    flat.insert(flat.end(), std::make_move_iterator(of_device.begin()),
                std::make_move_iterator(of_device.end()));
  }
  return flat;
}

}  // namespace detail

// One tensor → a chunk for each device. Backward gathers the chunks' gradients onto the input's
// device; a chunk that contributed nothing counts as zeros.
//
// **Torch counterpart.** torch.nn.parallel._functions.Scatter.
// **Devices and streams.** comm::scatter.
struct Scatter {
  static constexpr const char* name = "Scatter";
  std::vector<Device> devices = {};
  std::vector<std::int64_t> chunk_sizes = {};  // empty: the chunk rule
  std::int64_t dim = 0;

  std::vector<Tensor> forward(const Tensor& input) {
    std::vector<Tensor> chunks = comm::scatter(input, devices, chunk_sizes, dim);
    input_device = input.device();
    options = input.options();
    shapes.reserve(chunks.size());
    for (const Tensor& chunk : chunks) shapes.push_back(chunk.sizes());
    return chunks;
  }
  Tensor backward(const Backward&, std::vector<Tensor> grads) const;

  // What backward needs, set by forward.
  Device input_device = {};
  TensorOptions options = {};
  std::vector<Shape> shapes = {};
};

// Tensors on any devices → one on `device`, concatenated along `dim`; tensors without dimensions
// become a vector. Backward scatters the gradient back to where the inputs were.
//
// **Torch counterpart.** torch.nn.parallel._functions.Gather.
// **Devices and streams.** comm::gather.
struct Gather {
  static constexpr const char* name = "Gather";
  Device device = {};
  std::int64_t dim = 0;

  Tensor forward(const std::vector<Tensor>& inputs) {
    Tensor result = comm::gather(inputs, dim, device);
    input_devices = detail::devices_of(inputs);
    scalars = inputs[0].dim() == 0;
    sizes.reserve(inputs.size());
    for (const Tensor& input : inputs) sizes.push_back(scalars ? 1 : input.size(dim));
    return result;
  }
  std::vector<Tensor> backward(const Backward&, const Tensor& grad) const;

  // What backward needs, set by forward.
  std::vector<Device> input_devices = {};
  std::vector<std::int64_t> sizes = {};
  bool scalars = false;
};

// Tensors of one device → the same on every device, as one flat list: first all tensors of
// devices[0], then those of devices[1]. Backward adds up what the copies of each tensor got; one
// that none of them contributed to gets no gradient.
//
// **Torch counterpart.** torch.nn.parallel._functions.Broadcast, which gives zeros instead.
// **Devices and streams.** comm::broadcast_coalesced.
struct Broadcast {
  static constexpr const char* name = "Broadcast";
  std::vector<Device> devices;
  // Where the copies exist already, and only their place in the graph is missing.
  std::vector<Tensor> copies = {};

  std::vector<Tensor> forward(const std::vector<Tensor>& tensors) {
    source_device = tensors.empty() ? Device() : tensors[0].device();
    std::vector<Tensor> flat = std::move(copies);
    if (flat.empty()) flat = detail::flattened(comm::broadcast_coalesced(tensors, devices));
    for (Tensor& copy : flat) copy = lockstep::detail::make_view(copy);
    return flat;
  }
  // Takes the gradients over: memory that nobody else has may become a sum's.
  std::vector<Tensor> backward(const Backward&, std::vector<Tensor> grads) const;

  // What backward needs, set by forward.
  Device source_device = {};
};

// The opposite: `devices` times as many tensors as there are results, in Broadcast's order, → the
// sums on `destination`. Undefined inputs count as zeros; where all are undefined, so is the sum.
//
// **Torch counterpart.** torch.nn.parallel._functions.ReduceAddCoalesced.
// **Devices and streams.** comm::reduce_add_coalesced.
struct ReduceAddCoalesced {
  static constexpr const char* name = "ReduceAddCoalesced";
  std::vector<Device> devices;
  Device destination;

  std::vector<Tensor> forward(const std::vector<Tensor>& flat) const {
    return add(flat, devices, destination);
  }
  std::vector<Tensor> backward(const Backward& context, std::vector<Tensor> grads) const;

  // What forward does. A sum may take over the memory of a tensor that nobody else has.
  static std::vector<Tensor> add(std::vector<Tensor> flat, const std::vector<Device>& devices,
                                 Device destination) {
    const std::size_t count = flat.size() / devices.size();
    std::vector<Tensor> sums(count);
    std::vector<Tensor> parts;  // those of each sum that has several together
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
      if (!on_destination) parts[first] = copied(parts[first], destination);
      if (parts.size() == first + 1) {
        sums[j] = std::move(parts.back());
        parts.pop_back();
        continue;
      }
      summands[j] = std::span(parts).subspan(first);
      comm::detail::check_summands(name, summands[j], destination);
    }
    comm::detail::sum_taking_over(sums, std::move(summands), destination, comm::kDefaultBufferSize);
    return sums;
  }

 private:
  static Tensor copied(const Tensor& tensor, Device destination) {
    if (tensor.is_sparse()) return lockstep::detail::concatenated({tensor}, destination);
    return comm::broadcast(tensor, {destination})[0];
  }
};

namespace detail {

// As the operations do it; where nothing is recorded, without what those keep for backward.
inline std::vector<Tensor> scattered(const Tensor& tensor, const std::vector<Device>& devices,
                                     const std::vector<std::int64_t>& sizes, std::int64_t dim) {
  if (!lockstep::detail::is_recorded(tensor) && !tensor.is_sparse()) {
    return comm::scatter(tensor, devices, sizes, dim);
  }
  return lockstep::apply(Scatter{.devices = devices, .chunk_sizes = sizes, .dim = dim}, tensor);
}

inline std::vector<Tensor> reduced(std::vector<Tensor> flat, const std::vector<Device>& devices,
                                   Device destination) {
  if (std::none_of(flat.begin(), flat.end(), lockstep::detail::is_recorded)) {
    return ReduceAddCoalesced::add(std::move(flat), devices, destination);
  }
  return lockstep::apply(ReduceAddCoalesced{devices, destination}, flat);
}

}  // namespace detail

inline Tensor Scatter::backward(const Backward&, std::vector<Tensor> grads) const {
  for (std::size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) {
      grads[i] = zeros(shapes[i], {.dtype = options.dtype, .device = devices[i]});
    }
  }
  return lockstep::apply(Gather{.device = input_device, .dim = dim}, grads);
}

inline std::vector<Tensor> Gather::backward(const Backward&, const Tensor& grad) const {
  std::vector<Tensor> grads = detail::scattered(grad, input_devices, sizes, scalars ? 0 : dim);
  if (scalars) {
    for (Tensor& each : grads) each = each.reshape({});
  }
  return grads;
}

inline std::vector<Tensor> Broadcast::backward(const Backward&, std::vector<Tensor> grads) const {
  return detail::reduced(std::move(grads), devices, source_device);
}

// The gradient of a sum is the sum's gradient, on each device that a summand was on.
inline std::vector<Tensor> ReduceAddCoalesced::backward(const Backward& context,
                                                        std::vector<Tensor> grads) const {
  std::vector<Tensor> present;
  std::vector<std::size_t> places;
  for (std::size_t j = 0; j < grads.size(); ++j) {
    if (!grads[j].defined()) continue;
    present.push_back(grads[j]);
    places.push_back(j);
  }
  std::vector<Tensor> flat(devices.size() * grads.size());
  if (present.empty()) return flat;
  const std::vector<Tensor> copies = lockstep::apply(Broadcast{devices}, present);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    for (std::size_t p = 0; p < places.size(); ++p) {
      const std::size_t at = i * grads.size() + places[p];
      if (context.needs(at)) flat[at] = copies[i * places.size() + p];
    }
  }
  return flat;
}

}  // namespace lockstep::functions
