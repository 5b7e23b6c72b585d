// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::comm {

// Splits a tensor along `dim` and puts chunk i on devices[i].
//
// `devices` default to devices(). `chunk_sizes`, one for each device, must sum to the tensor's size
// along `dim`; without it torch's chunk rule decides (Split::chunk), and there may be fewer chunks
// than devices. A chunk for the tensor's own device is a view of it, with its strides. A copied
// chunk is channels_last if the tensor is, else contiguous.
//
// **Torch counterpart.** torch.nn.parallel.comm.scatter.
// **Devices and streams.** Each chunk is copied on its device's background copy stream, or on the
// stream given for it in `streams` (one entry for each device, std::nullopt for the copy stream),
// after what is on the current stream of the tensor's device. The chunk's device's current stream
// waits for the copy, and the chunk is recorded on it. The source is recorded on the copy streams.
// The caller is not blocked; but where the copies to host devices come to at most 4 MiB in all and
// these devices' copy streams have nothing else to do, the caller makes them itself, with the help
// of cores that are free.
// **Backward.** None: see functions.hpp.
// **Threads and exceptions.** Any thread. ValueError without devices, for sizes that do not fit, or
// for another number of streams than of devices; IndexError for a dim out of range; ShapeError for
// a tensor without dimensions; DeviceError for a device that is to get a chunk and does not exist,
// or a stream of another device; OperandError for an undefined or a sparse tensor.
std::vector<Tensor> scatter(const Tensor& tensor,
                            const std::vector<Device>& devices = lockstep::devices(),
                            const std::vector<std::int64_t>& chunk_sizes = {}, std::int64_t dim = 0,
                            const std::vector<std::optional<Stream>>& streams = {});

// Writes chunk i of the tensor into outs[i], on whatever device that is, and returns the outs.
//
// The outs' sizes along `dim` are the chunks', and must sum to the tensor's; all other sizes are
// the tensor's. They may be strided, but must not share memory with the tensor or with one another.
//
// **Torch counterpart.** torch::cuda::scatter_out, the `out` of torch.nn.parallel.comm.scatter.
// **Devices and streams.** As scatter, after everything issued before that uses an out's memory.
// **Backward.** None: an out that requires grad is an AutogradError while recording is on. The
// versions of the outs count the change.
// **Threads and exceptions.** Any thread. ValueError without outs, for an undefined one, for sizes
// that do not sum to the tensor's, or for contiguous tensors that share memory; ShapeError and
// DtypeError name the out's index; IndexError for a dim out of range. Nothing has been written
// then.
std::vector<Tensor> scatter_out(const Tensor& tensor, const std::vector<Tensor>& outs,
                                std::int64_t dim = 0);

}  // namespace lockstep::comm

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/comm/impl/scatter.ipp>
#endif
