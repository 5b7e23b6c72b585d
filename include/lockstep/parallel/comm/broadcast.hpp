// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/parallel/comm/detail/buffers.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <vector>

namespace lockstep::comm {

// Returns the tensor on each device: entry i is on devices[i]. The first entry for the tensor's own
// device is the tensor itself; every other entry is a new contiguous copy, also where a device is
// listed again. `devices` default to devices().
//
// **Torch counterpart.** torch.nn.parallel.comm.broadcast.
// **Devices and streams.** Each copy is made on its device's copy stream, after what is on the
// current stream of the tensor's device; the copy's device's current stream waits for it. Where the
// devices and the tensor's own are distinct GPUs and lockstep/nccl.hpp is there, one collective of
// the copy streams makes all copies. The caller is blocked as in scatter.
// **Backward.** None: see functions.hpp.
// **Threads and exceptions.** Any thread. ValueError without devices; DeviceError for one that does
// not exist; OperandError for an undefined tensor, and for a sparse one that is to be copied.
std::vector<Tensor> broadcast(const Tensor& tensor,
                              const std::vector<Device>& devices = lockstep::devices());

// Writes the tensor's elements into each of `outs`, on whatever devices these are, and returns
// them.
//
// All have the tensor's shape and dtype. They may be strided, but must not share memory with the
// tensor or with one another.
//
// **Torch counterpart.** torch::cuda::broadcast_out, the `out` of torch.nn.parallel.comm.broadcast.
// **Devices and streams.** Each copy is made on the copy stream of its out's device, after
// everything issued before that uses the out's memory; the device's current stream waits for it,
// and writes a strided out.
// **Backward.** None: an out that requires grad is an AutogradError while recording is on. The
// versions of the outs count the change.
// **Threads and exceptions.** Any thread. ValueError without outs, for an undefined one, or for
// contiguous tensors that share memory; ShapeError and DtypeError name the out's index. Nothing has
// been written then.
std::vector<Tensor> broadcast_out(const Tensor& tensor, const std::vector<Tensor>& outs);

// Returns several tensors of one device on each device: entry [i][j] is tensor j on devices[i].
//
// The first entry for the tensors' own device holds the tensors themselves. The copies on any other
// device are contiguous and lie together: a flat buffer holds copies of one dtype, in order, until
// it has reached `buffer_size` bytes. Each copy has a version of its own. So there are few
// allocations and, on GPUs, few operations.
//
// **Torch counterpart.** torch.nn.parallel.comm.broadcast_coalesced.
// **Devices and streams.** As broadcast, with one collective for all tensors. Without it, one
// launch on a GPU copies up to 101 tensors, which it reads where they lie. A tensor is copied by an
// operation of its own if it is on a host device or goes to one, if its bytes or its address are no
// multiple of 16, or if it is on another GPU and has a MiB or more, was lent, or is out of reach.
// **Backward.** None: see functions.hpp.
// **Threads and exceptions.** As broadcast; DeviceError for tensors of several devices, which names
// the first that is not where tensor 0 is.
std::vector<std::vector<Tensor>> broadcast_coalesced(
    const std::vector<Tensor>& tensors, const std::vector<Device>& devices = lockstep::devices(),
    std::size_t buffer_size = kDefaultBufferSize);

}  // namespace lockstep::comm

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/comm/impl/broadcast.ipp>
#endif
