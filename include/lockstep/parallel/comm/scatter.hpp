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
// `devices` defaults to devices(). `chunk_sizes`, one per device, must sum to the tensor's size
// along `dim`; without it Split::chunk decides, which may make fewer chunks than devices. A chunk
// for the tensor's own device is a view, with the tensor's strides; a copied chunk is channels_last
// if the tensor is, else contiguous.
//
// **Torch counterpart.** torch.nn.parallel.comm.scatter.
// **Devices and streams.** Each chunk is copied on its device's copy stream, or on its stream in
// `streams` (one entry per device, std::nullopt for the copy stream), after the work on the current
// stream of the tensor's device; the current stream of the chunk's device waits. The chunk and the
// source are recorded on the streams that use them. The caller does not block, but itself makes
// copies to host devices of at most 4 MiB in all if those devices' copy streams are idle.
// **Backward.** None: see functions.hpp.
// **Threads and exceptions.** Any thread. ValueError for no devices, for sizes that do not fit, or
// if `streams` and `devices` differ in length; IndexError for a dim out of range; ShapeError for a
// tensor without dimensions; DeviceError for a device that should get a chunk and does not exist,
// or for a stream of another device; OperandError for an undefined or a sparse tensor.
std::vector<Tensor> scatter(const Tensor& tensor,
                            const std::vector<Device>& devices = lockstep::devices(),
                            const std::vector<std::int64_t>& chunk_sizes = {}, std::int64_t dim = 0,
                            const std::vector<std::optional<Stream>>& streams = {});

// Writes chunk i of the tensor into outs[i], on any device, and returns the outs.
//
// The outs' sizes along `dim` are the chunks' and must sum to the tensor's; all other sizes are the
// tensor's. Outs may be strided, but must not share memory with the tensor or each other.
//
// **Torch counterpart.** torch::cuda::scatter_out, the `out` of torch.nn.parallel.comm.scatter.
// **Devices and streams.** As scatter, after all work issued before that uses an out's memory.
// **Backward.** None: an out that requires grad is an AutogradError while recording is on. The
// versions of the outs count the change.
// **Threads and exceptions.** Any thread. ValueError for no outs, an undefined one, sizes that do
// not sum to the tensor's, or contiguous tensors that share memory; ShapeError and DtypeError name
// the out's index; IndexError for a dim out of range. Nothing has been written then.
std::vector<Tensor> scatter_out(const Tensor& tensor, const std::vector<Tensor>& outs,
                                std::int64_t dim = 0);

}  // namespace lockstep::comm

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/comm/impl/scatter.ipp>
#endif
