// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/runtime/cuda_device.hpp>
#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/cuda/runtime/per_device.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/non_copyable.hpp>

#include <cstddef>
#include <mutex>
#include <vector>

namespace lockstep::cuda {

// A stream that nobody else has while this lives. NCCL's work waits for other
// processes: if two communicators shared a stream and other processes issued their work in another
// order, each would wait for the other for ever.
class OwnStream : lockstep::detail::NonCopyable {
 public:
  explicit OwnStream(Device device) : streams_(per_device<Streams>(device)), stream_(take()) {}
  ~OwnStream() {
    const std::lock_guard lock(streams_.mutex);
    streams_.free.push_back(&stream_);
  }

  CudaStream& get() const { return stream_; }

 private:
  // The streams of a device that nobody has. All live until the process ends, since blocks of
  // memory may refer to them.
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
