// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/accumulate_grad.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/comm/transfer.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::comm {

namespace detail {

template <class T>
struct AddKernel {
  View<const T> a;
  View<const T> b;
  View<T> out;
  LOCKSTEP_HD void operator()(std::size_t i) const { out[i] = a[i] + b[i]; }
};

// 5x4, as torch prints sizes in this place.
inline std::string times(const Shape& shape) {
  std::string text;
  for (const std::int64_t size : shape) {
    if (!text.empty()) text += 'x';
    text += std::to_string(size);
  }
  return text;
}

// The tensor as kernels on `destination` can read it: itself where that device reaches the other
// one's memory, otherwise a copy.
inline Tensor within_reach(const Tensor& tensor, Device destination) {
  const Tensor source = lockstep::detail::packed(tensor);
  if (source.device() == destination) return source;
  const Stream compute = current_stream(destination);
  if (lockstep::detail::can_access(destination, source.device())) {
    compute.wait_stream(current_stream(source.device()));
    source.record_stream(compute);
    return source;
  }
  const Transfer transfer(destination);
  Tensor copy = transfer.allocate(source.sizes(), source.dtype());
  transfer.copy_out(copy, source, whole_of(source));
  transfer.finish(copy);
  return copy;
}

}  // namespace detail

// The sum of tensors of one shape, each on a device of its own, on `destination`: a new tensor.
//
// Added in the order given, so the same inputs give the same bits.
//
// **Torch counterpart.** torch.nn.parallel.comm.reduce_add; `destination` must be the device of one
// of the inputs.
// **Devices and streams.** On the destination's current stream, after what is on each input's.
// **Backward.** None: see functions.hpp.
// **Threads and exceptions.** ShapeError, DtypeError and DeviceError name the input.
inline Tensor reduce_add(const std::vector<Tensor>& inputs, Device destination) {
  check<ValueError>(!inputs.empty(), "reduce_add: expected at least one input");
  const Shape& shape = inputs[0].sizes();
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    check<ShapeError>(inputs[i].sizes() == shape, "reduce_add: input ", i,
                      " has invalid size: got ", detail::times(inputs[i].sizes()),
                      ", but expected ", detail::times(shape));
    check<DtypeError>(inputs[i].dtype() == inputs[0].dtype(), "reduce_add: input ", i,
                      " has dtype ", inputs[i].dtype(), ", but expected ", inputs[0].dtype());
  }
  check<DeviceError>(
      std::any_of(inputs.begin(), inputs.end(),
                  [&](const Tensor& input) { return input.device() == destination; }),
      "reduce_add expects destination to be on the same device with one of the tensors, but none "
      "is on ",
      destination);

  const Stream stream = current_stream(destination);
  Tensor total = lockstep::detail::empty_on(stream, shape, inputs[0].dtype());
  if (inputs.size() == 1) {
    lockstep::detail::copy_into(total, inputs[0]);
    return total;
  }
  dispatch_numeric(total.dtype(), "reduce_add", [&]<class T>(T) {
    using lockstep::detail::input;
    using lockstep::detail::output;
    const Tensor first = detail::within_reach(inputs[0], destination);
    const Tensor second = detail::within_reach(inputs[1], destination);
    launch(stream, static_cast<std::size_t>(total.numel()),
           detail::AddKernel<T>{input<T>(first), input<T>(second), output<T>(total, stream)});
  });
  for (std::size_t i = 2; i < inputs.size(); ++i) {
    lockstep::detail::add_in_place(total, detail::within_reach(inputs[i], destination));
  }
  return total;
}

// reduce_add of several tensors at once: inputs[i][j] is tensor j of device i, and the result's
// j-th entry the sum over i.
//
// **Torch counterpart.** torch.nn.parallel.comm.reduce_add_coalesced.
// **Devices and streams.** As reduce_add.
inline std::vector<Tensor> reduce_add_coalesced(const std::vector<std::vector<Tensor>>& inputs,
                                                Device destination) {
  check<ValueError>(!inputs.empty(), "reduce_add_coalesced: expected at least one list of tensors");
  std::vector<Tensor> sums;
  for (std::size_t j = 0; j < inputs[0].size(); ++j) {
    std::vector<Tensor> parts;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      check<ValueError>(inputs[i].size() == inputs[0].size(), "reduce_add_coalesced: list ", i,
                        " has ", inputs[i].size(), " tensors, but list 0 has ", inputs[0].size());
      parts.push_back(inputs[i][j]);
    }
    sums.push_back(reduce_add(parts, destination));
  }
  return sums;
}

}  // namespace lockstep::comm
