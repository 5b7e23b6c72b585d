// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/saved.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/parallel/comm.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>
#include <vector>

// The collectives as differentiable operations: Scatter and Gather, Broadcast and
// ReduceAddCoalesced are each the other's backward, to any order. Torch's
// torch.nn.parallel._functions.
namespace lockstep::functions {

namespace detail {

// The lists of all devices, one after another: the order of Broadcast's results.
std::vector<Tensor> flattened(std::vector<std::vector<Tensor>> copies);

}  // namespace detail

// Splits a tensor into a chunk per device. Backward gathers the chunks' gradients onto the input's
// device; a chunk without a gradient counts as zeros.
//
// **Torch counterpart.** torch.nn.parallel._functions.Scatter.
// **Devices and streams.** comm::scatter.
// **Threads and exceptions.** comm::scatter's; backward throws comm::gather's.
struct Scatter {
  static constexpr const char* name = "Scatter";
  static constexpr bool saves = false;
  std::vector<Device> devices = {};
  std::vector<std::int64_t> chunk_sizes = {};  // empty: Split::chunk's
  std::int64_t dim = 0;

  std::vector<Tensor> forward(const Tensor& input);
  Tensor backward(const Backward&, std::vector<Tensor> grads) const;

  // What backward needs, set by forward.
  Device input_device = {};
  TensorOptions options = {};
  std::vector<Shape> shapes = {};
};

// Concatenates tensors from any devices along `dim` on `device`; tensors without dimensions become
// a vector. Backward scatters the gradient back to the inputs' devices.
//
// **Torch counterpart.** torch.nn.parallel._functions.Gather.
// **Devices and streams.** comm::gather.
// **Threads and exceptions.** comm::gather's; backward throws comm::scatter's.
struct Gather {
  static constexpr const char* name = "Gather";
  static constexpr bool saves = false;
  Device device = {};
  std::int64_t dim = 0;

  Tensor forward(const std::vector<Tensor>& inputs);
  std::vector<Tensor> backward(const Backward&, const Tensor& grad) const;

  // What backward needs, set by forward.
  std::vector<Device> input_devices = {};
  std::vector<std::int64_t> sizes = {};
  bool scalars = false;
};

// Copies tensors of one device to every device and returns one flat list: all tensors of
// devices[0], then those of devices[1]. Backward sums the gradients of each tensor's copies, if
// there are any.
//
// **Torch counterpart.** torch.nn.parallel._functions.Broadcast, which gives zeros instead, and
// whose copies of a tensor that does not require grad do not either; here they do if another tensor
// does.
// **Devices and streams.** comm::broadcast_coalesced.
// **Threads and exceptions.** comm::broadcast_coalesced's; backward throws ReduceAddCoalesced's.
struct Broadcast {
  static constexpr const char* name = "Broadcast";
  static constexpr bool saves = false;
  std::vector<Device> devices;
  std::vector<Tensor> copies = {};  // the results, if they exist already

  std::vector<Tensor> forward(const std::vector<Tensor>& tensors);
  // May compute a sum in the memory of a gradient that nobody else holds.
  std::vector<Tensor> backward(const Backward&, std::vector<Tensor> grads) const;

  // What backward needs, set by forward.
  Device source_device = {};
};

// The reverse of Broadcast: sums tensors, listed as Broadcast's results are, over the devices and
// returns the sums on `destination`. Undefined inputs count as zeros; if all are undefined, so is
// the sum. Backward broadcasts the sums' gradients to the devices.
//
// **Torch counterpart.** torch.nn.parallel._functions.ReduceAddCoalesced.
// **Devices and streams.** comm::reduce_add_coalesced.
// **Threads and exceptions.** ValueError for no devices, or unless there are equally many tensors
// per device; ShapeError and DtypeError name the summand. Backward throws Broadcast's.
struct ReduceAddCoalesced {
  static constexpr const char* name = "ReduceAddCoalesced";
  static constexpr bool saves = false;
  std::vector<Device> devices;
  Device destination;

  std::vector<Tensor> forward(const std::vector<Tensor>& flat) const {
    return add(flat, devices, destination);
  }
  std::vector<Tensor> backward(const Backward& context, std::vector<Tensor> grads) const;

  // The same as forward, but may compute a sum in the memory of a tensor that only `flat` owns.
  static std::vector<Tensor> add(std::vector<Tensor> flat, const std::vector<Device>& devices,
                                 Device destination);
};

}  // namespace lockstep::functions

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/impl/functions.ipp>
#endif
