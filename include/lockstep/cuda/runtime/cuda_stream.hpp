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
#include <lockstep/non_copyable.hpp>

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
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
  // The handle for calls that may issue work. From its end on, until somebody has asked the driver
  // or waited, the stream is not known to be idle.
  class Use : lockstep::detail::NonCopyable {
   public:
    explicit Use(const CudaStream& stream) : stream_(stream) {}
    ~Use() { stream_.uses_.fetch_add(1, std::memory_order_release); }
    operator cudaStream_t() const { return stream_.bare_handle(); }

   private:
    const CudaStream& stream_;
  };

  CudaStream(Device device, EventPool& events) : StreamState(device), events_(events) {
    const DeviceGuard guard(device);
    check(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags",
          device);
  }

  // For one call, that in whose arguments it stands.
  [[nodiscard]] Use handle() const { return Use(*this); }

  // The handle for calls that issue nothing that another stream would have to wait for.
  cudaStream_t bare_handle() const {
    enter_gpu(device());
    return handle_;
  }

  // The handle for who issues work when it likes: only the driver knows from here on whether the
  // stream is idle.
  cudaStream_t lend_handle() const {
    lent_.store(true, std::memory_order_release);
    return bare_handle();
  }

  bool idle() const override {
    const std::uint64_t uses = uses_.load(std::memory_order_acquire);
    const bool idle = is_done(cudaStreamQuery(bare_handle()), "cudaStreamQuery", device());
    if (idle) idle_after_.store(uses, std::memory_order_release);
    return idle;
  }

  bool known_idle() const override {
    return idle_after_.load(std::memory_order_acquire) == uses_.load(std::memory_order_acquire) &&
           !lent_.load(std::memory_order_acquire);
  }

  detail::EventPtr record() override {
    detail::check_not_forked();
    return std::make_shared<CudaEvent>(events_, *this, bare_handle());
  }

  // A GPU cannot wait for work of a host stream: the caller waits for it. Callers have asked
  // whether the event has come already.
  void wait(const detail::EventPtr& event) override {
    if (const auto* recorded = dynamic_cast<const CudaEvent*>(event.get())) {
      if (recorded->is_of(*this)) return;
      OtherGpus::rely(device(), recorded->point(event));
      check(cudaStreamWaitEvent(handle(), recorded->handle(), 0), "cudaStreamWaitEvent", device());
    } else {
      event->synchronize();
    }
  }

  // Waits, whatever comes of it: for whoever leaves with an error, and with it the memory that work
  // of the stream may be using.
  void drain() const noexcept {
    if (cudaStreamSynchronize(bare_handle()) != cudaSuccess) (void)cudaGetLastError();
  }

  void synchronize() override {
    detail::check_not_forked();
    const std::uint64_t uses = uses_.load(std::memory_order_acquire);
    check(cudaStreamSynchronize(bare_handle()), "cudaStreamSynchronize", device());
    idle_after_.store(uses, std::memory_order_release);
    LostResults::check(device());
    OtherGpus::check(device());
    if (const auto look = after_wait.load(std::memory_order_acquire)) look(*this);
  }

 private:
  EventPool& events_;
  cudaStream_t handle_ = nullptr;
  // How many uses of the handle have ended, and how many had when it was last found that the stream
  // is idle. A use is counted after its call: whoever comes behind the call in order comes behind
  // the count, too, and a question to the driver that was answered before has another count. (Who
  // takes memory that a library call has given back, before that call's use has ended, counts a use
  // by taking it: CudaBackend::allocate.)
  mutable std::atomic<std::uint64_t> uses_{0};
  mutable std::atomic<std::uint64_t> idle_after_{0};
  mutable std::atomic<bool> lent_{false};
};

}  // namespace lockstep::cuda
