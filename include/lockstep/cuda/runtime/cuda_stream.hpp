// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/cuda/lost_results.hpp>
#include <lockstep/cuda/runtime/cuda_event.hpp>
#include <lockstep/cuda/runtime/device_guard.hpp>
#include <lockstep/cuda/runtime/error.hpp>
#include <lockstep/cuda/runtime/other_gpus.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>

#include <cuda_runtime_api.h>

#include <atomic>
#include <memory>

namespace lockstep::cuda {

// Called when the host has waited for a stream: throws what the stream's kernels have left for the
// host to throw. Set before `main`.
inline constinit std::atomic<void (*)(const detail::StreamState&)> after_wait{nullptr};

// A stream of a CUDA device. Never the legacy default stream, which would order itself with others
// behind the library's back.
//
// Threads: the handle never changes, and CUDA's calls take it from any thread.
class CudaStream final : public detail::StreamState {
 public:
  CudaStream(Device device, EventPool& events) : StreamState(device), events_(events) {
    const DeviceGuard guard(device);
    check(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags",
          device);
  }

  cudaStream_t handle() const { return handle_; }

  bool idle() const override {
    return is_done(cudaStreamQuery(handle_), "cudaStreamQuery", device());
  }

  detail::EventPtr record() override {
    detail::check_not_forked();
    return std::make_shared<CudaEvent>(events_, *this, handle_);
  }

  // A GPU cannot wait for work of a host stream: the caller waits for it. Callers have asked
  // whether the event has come already.
  void wait(const detail::EventPtr& event) override {
    if (const auto* recorded = dynamic_cast<const CudaEvent*>(event.get())) {
      if (recorded->is_of(*this)) return;
      OtherGpus::rely(device(), recorded->point(event));
      check(cudaStreamWaitEvent(handle_, recorded->handle(), 0), "cudaStreamWaitEvent", device());
    } else {
      event->synchronize();
    }
  }

  void synchronize() override {
    detail::check_not_forked();
    check(cudaStreamSynchronize(handle_), "cudaStreamSynchronize", device());
    LostResults::check(device());
    OtherGpus::check(device());
    if (const auto look = after_wait.load(std::memory_order_acquire)) look(*this);
  }

 private:
  EventPool& events_;
  cudaStream_t handle_ = nullptr;
};

}  // namespace lockstep::cuda
