// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/runtime/cuda_device.hpp>
#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/cuda/runtime/per_device.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>

#include <cstddef>
#include <mutex>
#include <vector>

namespace lockstep::cuda {

// A stream that a communicator has to itself while this lives. NCCL's work waits for other
// processes, so what shared a stream with it in another order there might never come to its turn.
class OwnStream {
 public:
  explicit OwnStream(Device device) : streams_(per_device<Streams>(device)), stream_(take()) {}
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() {
    const std::lock_guard lock(streams_.mutex);
    streams_.free.push_back(&stream_);
  }

  CudaStream& get() const { return stream_; }

 private:
  // Those of a device that nobody has; they live until the process ends, as memory may name them.
  struct Streams {
    explicit Streams(Device at) : device(at) {}
    const Device device;
    std::mutex mutex;  // guards all below
    std::vector<CudaStream*> free;
    std::size_t made = 0;
  };

  CudaStream& take() const {
    const std::lock_guard lock(streams_.mutex);
    if (streams_.free.empty()) {
      streams_.free.reserve(++streams_.made);  // so that giving one back never fails
      return *new CudaStream(streams_.device, CudaDevice::at(streams_.device).events);
    }
    CudaStream& stream = *streams_.free.back();
    streams_.free.pop_back();
    return stream;
  }

  Streams& streams_;
  CudaStream& stream_;
};

}  // namespace lockstep::cuda
