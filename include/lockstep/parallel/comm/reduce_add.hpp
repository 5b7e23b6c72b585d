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

// The tensors of one sum. The caller keeps the list that this refers to.
using Summands = std::span<const Tensor>;

// Throws unless there are summands, they agree in shape and dtype, and one of them is on
// `destination`.
void check_summands(const char* operation, Summands inputs, Device destination);

}  // namespace detail

// Adds up tensors of one shape and dtype, each on whatever device, and returns the sum on
// `destination`: a new tensor.
//
// They are added in the order given, so the same inputs give the same bits; NCCL, which does it
// where all inputs are on distinct GPUs and lockstep/nccl.hpp is there, has an order of its own.
// Half precision is added in f32 and rounded once, never by NCCL. Without a destination the sum is
// where the first input is. The sum of sparse tensors is sparse, and lists the rows of all of them;
// the sum of sparse and dense ones is dense.
//
// **Torch counterpart.** torch.nn.parallel.comm.reduce_add, whose `destination` defaults to the
// current device. As there, it must be the device of one of the inputs.
// **Devices and streams.** The additions are work of the destination's current stream, after what
// is on each input's; NCCL's collective is work of all these streams.
// **Backward.** None: see functions.hpp.
// **Threads and exceptions.** Any thread. ValueError for no inputs; ShapeError and DtypeError for
// an input that differs from the first, which they name; DtypeError for several inputs of u8 or
// booleans; DeviceError if no input is on `destination`; OperandError for an undefined input.
Tensor reduce_add(const std::vector<Tensor>& inputs, std::optional<Device> destination = {});

// Makes several sums at once: inputs[i][j] is tensor j of device i, and entry j of the result is
// the sum of inputs[i][j] over all i.
//
// The sums of one dtype lie together in buffers of at most `buffer_size` bytes; a larger sum has a
// buffer to itself. Each sum has a version of its own. A buffer lives as long as any of its sums.
// Sparse sums lie alone.
//
// **Torch counterpart.** torch.nn.parallel.comm.reduce_add_coalesced.
// **Devices and streams.** As reduce_add. One allocation for each buffer. On a GPU without a
// collective, one launch adds list i of the inputs to up to 63 sums of one dtype. A sum has
// launches of its own if its tensors are strided, of half precision or of a Mi elements or more, or
// lie in memory that the GPU cannot access or that was lent on another GPU.
// **Backward.** None: see functions.hpp.
// **Threads and exceptions.** As reduce_add; ValueError for no lists or for lists of different
// lengths.
std::vector<Tensor> reduce_add_coalesced(const std::vector<std::vector<Tensor>>& inputs,
                                         std::optional<Device> destination = {},
                                         std::size_t buffer_size = kDefaultBufferSize);

namespace detail {

// sums[j] := the sum of summands[j], which have been checked; where that list is empty sums[j]
// stays what it is. A sum is a new tensor with a version of its own, in one buffer for each of
// take_tensors' groups; sparse sums lie alone. With `takes_over`, where the list holds the only
// handle on its first summand's memory (may_hold_sum), the sum is made in that memory, which saves
// a buffer and a pass over it: that summand has changed afterwards.
//
// One collective makes the sums where the summands' devices are distinct GPUs and lockstep/nccl.hpp
// is there, additions elsewhere.
void sum_lists(std::vector<Tensor>& sums, std::vector<Summands> summands, Device destination,
               std::size_t buffer_size, bool takes_over);

}  // namespace detail

}  // namespace lockstep::comm

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/comm/impl/reduce_add.ipp>
#endif
