// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/parallel/comm/detail/buffers.hpp>
#include <lockstep/parallel/comm/detail/summands.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <optional>
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
std::string times(const Shape& shape);

// Throws unless the summands can be added up on `destination`.
void check_summands(const char* operation, Summands inputs, Device destination);

}  // namespace detail

// The sum of tensors of one shape, each on a device of its own, on `destination`: a new tensor.
//
// Added in the order given, so the same inputs give the same bits; NCCL, which does it where all
// inputs are on distinct GPUs and lockstep/nccl.hpp is there, has an order of its own. Without a
// destination the sum is where the first input is. The sum of sparse tensors is sparse, and lists
// the rows of all of them; of sparse and dense ones it is dense.
//
// **Torch counterpart.** torch.nn.parallel.comm.reduce_add, whose default is the current device;
// there is none here. As there, `destination` must be the device of one of the inputs.
// **Devices and streams.** On the destination's current stream, after what is on each input's; by
// NCCL, as a collective of all these streams.
// **Backward.** None: see functions.hpp.
// **Threads and exceptions.** ShapeError, DtypeError and DeviceError name the input.
Tensor reduce_add(const std::vector<Tensor>& inputs, std::optional<Device> destination = {});

// reduce_add of several tensors at once: inputs[i][j] is tensor j of device i, and the result's
// j-th entry the sum over i.
//
// The sums of one dtype lie together in buffers of at most `buffer_size` bytes, or of one tensor
// that is larger, but each has a version of its own. A buffer lives as long as one of its sums.
//
// **Torch counterpart.** torch.nn.parallel.comm.reduce_add_coalesced.
// **Devices and streams.** As reduce_add. One allocation for each buffer.
// **Backward.** None: see functions.hpp.
// **Threads and exceptions.** As reduce_add; ValueError for lists of different lengths.
std::vector<Tensor> reduce_add_coalesced(const std::vector<std::vector<Tensor>>& inputs,
                                         std::optional<Device> destination = {},
                                         std::size_t buffer_size = kDefaultBufferSize);

namespace detail {

// sums[j] := the sum of summands[j], where that is not empty. As sum_coalesced; but where nobody
// else can see a list's first summand any more, the sum takes its memory, which spares the buffer
// and a pass over it: that summand has changed afterwards.
void sum_taking_over(std::vector<Tensor>& sums, std::vector<Summands> summands, Device destination,
                     std::size_t buffer_size);

}  // namespace detail

}  // namespace lockstep::comm

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/comm/impl/reduce_add.ipp>
#endif
