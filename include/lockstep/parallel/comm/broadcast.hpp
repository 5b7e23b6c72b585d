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

// Returns the tensor on each device: entry i is on devices[i].
//
// The first entry for the tensor's own device is the tensor itself; every other entry is a new
// contiguous copy, even if a device is listed again. `devices` defaults to devices().
//
// **Torch counterpart.** torch.nn.parallel.comm.broadcast.
// **Devices and streams.** Each copy runs on its device's copy stream, after the work on the
// current stream of the tensor's device; the current stream of the copy's device waits for it. If
// all devices involved are distinct GPUs and lockstep/nccl.hpp is included, one collective on the
// copy streams makes all copies. The caller blocks as in scatter.
// **Backward.** None: see functions.hpp.
// **Threads and exceptions.** Any thread. ValueError for no devices; DeviceError for one that does
// not exist; OperandError for an undefined tensor and for a sparse one that has to be copied.
std::vector<Tensor> broadcast(const Tensor& tensor,
                              const std::vector<Device>& devices = lockstep::devices());

// Writes the tensor's elements into each of `outs`, on any devices, and returns them.
//
// All outs have the tensor's shape and dtype. They may be strided, but must not share memory with
// the tensor or each other.
//
// **Torch counterpart.** torch::cuda::broadcast_out, the `out` of torch.nn.parallel.comm.broadcast.
// **Devices and streams.** Each copy runs on the copy stream of its out's device, after all work
// issued before that uses the out's memory. The device's current stream waits for it, and writes
// strided outs.
// **Backward.** None: an out that requires grad is an AutogradError while recording is on. The
// versions of the outs count the change.
// **Threads and exceptions.** Any thread. ValueError for no outs, an undefined one, or contiguous
// tensors that share memory; ShapeError and DtypeError name the out's index. Nothing has been
// written then.
std::vector<Tensor> broadcast_out(const Tensor& tensor, const std::vector<Tensor>& outs);

// Returns several tensors of one device on each device: entry [i][j] is tensor j on devices[i].
//
// The first entry for the tensors' own device holds the tensors themselves. The copies on any other
// device are contiguous and share flat buffers, which saves allocations and, on GPUs, operations: a
// buffer holds copies of one dtype, in order, until it has reached `buffer_size` bytes. Each copy
// has its own version.
//
// **Torch counterpart.** torch.nn.parallel.comm.broadcast_coalesced.
// **Devices and streams.** As broadcast, with one collective for all tensors. Without a collective,
// one launch on a GPU copies many tensors, unless they are large, lent or inaccessible.
// **Backward.** None: see functions.hpp.
// **Threads and exceptions.** As broadcast; DeviceError for tensors on several devices, naming the
// first that is not where tensor 0 is.
std::vector<std::vector<Tensor>> broadcast_coalesced(
    const std::vector<Tensor>& tensors, const std::vector<Device>& devices = lockstep::devices(),
    std::size_t buffer_size = kDefaultBufferSize);

}  // namespace lockstep::comm

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/comm/impl/broadcast.ipp>
#endif
