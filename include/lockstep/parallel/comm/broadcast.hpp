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

// The tensor on each device. The first entry for the device that it is on already is the tensor
// itself, every other one a copy of its own. `devices` default to devices().
//
// **Torch counterpart.** torch.nn.parallel.comm.broadcast.
// **Devices and streams.** Copied on each device's copy stream, as in scatter; where all devices
// are distinct GPUs and lockstep/nccl.hpp is there, by one collective of these streams.
// **Backward.** None: see functions.hpp.
// **Threads and exceptions.** ValueError without devices.
std::vector<Tensor> broadcast(const Tensor& tensor,
                              const std::vector<Device>& devices = lockstep::devices());

// Writes the tensor's elements into each of `outs`, wherever they are, and returns these.
//
// They may be strided, but must not share memory with the tensor or with one another.
//
// **Torch counterpart.** torch::cuda::broadcast_out, the `out` of torch.nn.parallel.comm.broadcast.
// **Devices and streams.** Copied on each out's copy stream; what uses its memory already comes
// first.
// **Backward.** None: an out that requires grad is an AutogradError while recording is on. The
// versions of the outs count the change.
// **Threads and exceptions.** ValueError without outs, or for memory that is shared; ShapeError and
// DtypeError name the index. Nothing has been written then.
std::vector<Tensor> broadcast_out(const Tensor& tensor, const std::vector<Tensor>& outs);

// Several tensors of one device on each device, small ones collected into buffers of about
// `buffer_size` bytes. Result [i][j] is tensor j on devices[i].
//
// The first entry for the device that the tensors are on holds the tensors themselves. The copies
// of a device lie together in one buffer for each dtype, but each has a version of its own.
//
// **Torch counterpart.** torch.nn.parallel.comm.broadcast_coalesced.
// **Devices and streams.** As broadcast.
// **Backward.** None: see functions.hpp.
// **Threads and exceptions.** ValueError without devices; DeviceError for tensors of several
// devices names the first that is elsewhere.
std::vector<std::vector<Tensor>> broadcast_coalesced(
    const std::vector<Tensor>& tensors, const std::vector<Device>& devices = lockstep::devices(),
    std::size_t buffer_size = kDefaultBufferSize);

}  // namespace lockstep::comm

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/comm/impl/broadcast.ipp>
#endif
