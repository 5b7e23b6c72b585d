// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/torch/device.hpp>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

// On a GPU both libraries issue work, each to its own current stream. Before one uses memory on
// which the other has worked, its stream waits; the host does not.
namespace lockstep::libtorch::detail {

// A stream of lockstep's on a GPU, as an external stream of LibTorch's: its number is the handle,
// as with c10::cuda::getStreamFromExternal, which only a LibTorch for GPUs has.
inline c10::Stream at_stream(const Stream& stream) {
  const auto handle = lockstep::detail::backend_of(stream.device()).native_handle(stream.state());
  return c10::Stream(c10::Stream::UNSAFE, at_device(stream.device()),
                     static_cast<c10::StreamId>(handle));
}

// This thread's current stream of LibTorch's.
inline c10::Stream libtorch_stream(Device device) {
  return c10::impl::VirtualGuardImpl(at::kCUDA).getStream(at_device(device));
}

inline void order(const c10::Stream& first, const c10::Stream& second) {
  c10::Event event(at::kCUDA);
  event.record(first);
  event.block(second);
}

// Orders what this thread has issued by lockstep before what LibTorch does next on the device. On
// the host, where LibTorch has no streams, it waits.
inline void wait_for_lockstep(Device device) {
  const Stream stream = current_stream(device);
  if (device.is_cpu()) return stream.synchronize();
  order(at_stream(stream), libtorch_stream(device));
}

// The reverse.
inline void wait_for_libtorch(Device device) {
  if (device.is_cuda()) order(libtorch_stream(device), at_stream(current_stream(device)));
}

}  // namespace lockstep::libtorch::detail
