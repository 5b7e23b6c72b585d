// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/parallel/comm/detail/buffers.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::comm {

namespace detail {

// The tensors of one sum. A view: the caller keeps the list.
using Summands = std::span<const Tensor>;

// Throws unless there are summands, they agree in shape and dtype, and one of them is on
// `destination`.
void check_summands(const char* operation, Summands inputs, Device destination);

}  // namespace detail

// Adds tensors of one shape and dtype, from any devices, and returns the sum in a new tensor on
// `destination`.
//
// `destination` defaults to the first input's device. Inputs are added in order, so the same inputs
// give the same bits, unless NCCL takes over: if all inputs are on distinct GPUs and
// lockstep/nccl.hpp is included. Half precision is added in f32 and rounded once, never by NCCL. A
// sum of sparse tensors is sparse and lists the rows of all of them; a sum of sparse and dense ones
// is dense.
//
// **Torch counterpart.** torch.nn.parallel.comm.reduce_add, whose `destination` defaults to the
// current device. As there, it must be the device of one of the inputs.
// **Devices and streams.** Adds on the destination's current stream, after the work on each
// input's; NCCL's collective runs on all these streams.
// **Backward.** None: see functions.hpp.
// **Threads and exceptions.** Any thread. ValueError for no inputs; ShapeError and DtypeError
// naming an input that differs from the first; DtypeError for several inputs of u8 or booleans;
// DeviceError if no input is on `destination`; OperandError for an undefined input.
Tensor reduce_add(const std::vector<Tensor>& inputs, std::optional<Device> destination = {});

// Makes several sums at once: inputs[i][j] is tensor j of device i, and entry j of the result is
// the sum of inputs[i][j] over all i.
//
// Sums of one dtype share buffers of at most `buffer_size` bytes, which live as long as any of
// their sums; a larger sum, and a sparse one, has its own. Each sum has its own version.
//
// **Torch counterpart.** torch.nn.parallel.comm.reduce_add_coalesced.
// **Devices and streams.** As reduce_add, with one allocation per buffer. On a GPU without a
// collective, one launch adds to many sums, unless these are large, of half precision, or of
// strided or inaccessible tensors.
// **Backward.** None: see functions.hpp.
// **Threads and exceptions.** As reduce_add; ValueError for no lists or for lists of different
// lengths.
std::vector<Tensor> reduce_add_coalesced(const std::vector<std::vector<Tensor>>& inputs,
                                         std::optional<Device> destination = {},
                                         std::size_t buffer_size = kDefaultBufferSize);

namespace detail {

// Sets sums[j] to the sum of the checked summands[j], or leaves it if that list is empty. The sums
// are new tensors, with a version each, in one buffer for each of take_tensors' groups; sparse sums
// lie alone. With `takes_over`, a sum is made in the memory of its first summand where only the
// list owns it (may_hold_sum), which saves a buffer and a pass over it.
//
// One collective makes the sums if the summands' devices are distinct GPUs and lockstep/nccl.hpp is
// included.
void sum_lists(std::vector<Tensor>& sums, std::vector<Summands> summands, Device destination,
               std::size_t buffer_size, bool takes_over);

}  // namespace detail

}  // namespace lockstep::comm

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/comm/impl/reduce_add.ipp>
#endif
