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
// along `dim`; without it torch's chunk rule decides, and there may be fewer chunks than devices. A
// chunk for the device that the tensor is on already is a view of it. A copied
// chunk is channels_last if the tensor is, else contiguous.
//
// **Torch counterpart.** torch.nn.parallel.comm.scatter.
// **Devices and streams.** Each chunk is copied on its device's background copy stream, or on the
// one given for it in `streams` (one entry for each device, std::nullopt for the copy stream); the
// device's current stream waits for that, and the chunk is recorded on it. The source is recorded
// on the copy streams. The caller is not blocked; but where the copies come to at most 4 MiB in all
// and the copy streams of host devices have nothing else to do, it makes them itself, with the help
// of what cores are free.
// **Backward.** None: see functions.hpp.
// **Threads and exceptions.** ValueError without devices or for sizes that do not fit; IndexError
// for a dim out of range; ShapeError for a tensor without dimensions; DeviceError for a stream of
// another device.
std::vector<Tensor> scatter(const Tensor& tensor,
                            const std::vector<Device>& devices = lockstep::devices(),
                            const std::vector<std::int64_t>& chunk_sizes = {}, std::int64_t dim = 0,
                            const std::vector<std::optional<Stream>>& streams = {});

// Writes chunk i of the tensor into outs[i], wherever that is, and returns the outs.
//
// The outs' sizes along `dim` are the chunks', and must sum to the tensor's; all other sizes are
// the tensor's. They may be strided, but must not share memory with the tensor or with one another.
//
// **Torch counterpart.** torch::cuda::scatter_out, the `out` of torch.nn.parallel.comm.scatter.
// **Devices and streams.** As scatter; what uses an out's memory already comes first.
// **Backward.** None: an out that requires grad is an AutogradError while recording is on. The
// versions of the outs count the change.
// **Threads and exceptions.** ValueError without outs, for sizes that do not sum up, or for memory
// that is shared; ShapeError and DtypeError name the index. Nothing has been written then.
std::vector<Tensor> scatter_out(const Tensor& tensor, const std::vector<Tensor>& outs,
                                std::int64_t dim = 0);

}  // namespace lockstep::comm

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/comm/impl/scatter.ipp>
#endif
