// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::comm {

// Concatenates tensors from any devices along `dim` into a new one on `destination`.
//
// The tensors must agree in dtype and in all other sizes; tensors without dimensions count as
// vectors of one element, whatever `dim` is. `destination` defaults to the first tensor's device.
// The result is contiguous, or channels_last if all tensors are.
//
// **Torch counterpart.** torch.nn.parallel.comm.gather, whose default is the current device; here
// the CPU is an ordinary source and target.
// **Devices and streams.** Copies on the destination's copy stream, or on its current stream if it
// is a GPU and holds one of the tensors, after the work on each source's current stream; the
// destination's current stream waits. A result in plain host memory is complete when gather
// returns.
// **Backward.** None: see functions.hpp.
// **Threads and exceptions.** Any thread. ValueError for no tensors or an undefined one, DtypeError
// and ShapeError for tensors that disagree, all naming the tensor's index; IndexError for a dim out
// of range; DeviceError for a destination that does not exist; OperandError for a sparse tensor.
Tensor gather(const std::vector<Tensor>& tensors, std::int64_t dim = 0,
              std::optional<Device> destination = {});

// Concatenates tensors from any devices along `dim` into `out` and returns it.
//
// `out` has the shape and dtype of gather's result. It may be strided, but must not share memory
// with the tensors.
//
// **Torch counterpart.** torch::cuda::gather_out, the `out` of torch.nn.parallel.comm.gather.
// **Devices and streams.** As gather, after all work issued before that uses the memory of `out`.
// **Backward.** None: an `out` that requires grad is an AutogradError while recording is on. Its
// version counts the change.
// **Threads and exceptions.** As gather; ShapeError and DtypeError for an `out` that does not fit,
// ValueError for an undefined one or for a contiguous one that shares memory with a contiguous
// tensor. Nothing has been written then.
Tensor gather_out(const std::vector<Tensor>& tensors, const Tensor& out, std::int64_t dim = 0);

}  // namespace lockstep::comm

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/comm/impl/gather.ipp>
#endif
