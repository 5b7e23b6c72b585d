// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/lost_results.hpp>
#include <lockstep/cuda/runtime/device_guard.hpp>
#include <lockstep/cuda/runtime/error.hpp>
#include <lockstep/cuda/runtime/other_gpus.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace lockstep::cuda {

// Events of one device, made with the same flags, that no CudaEvent holds. They are kept because
// making one costs more than recording it.
//
// Lives until the process ends. Any thread; `mutex_` guards the list.
class EventPool {
 public:
  explicit EventPool(Device device, unsigned flags = cudaEventDisableTiming)
      : device_(device), flags_(flags) {}

  Device device() const { return device_; }

  cudaEvent_t take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        const cudaEvent_t event = free_.back();
        free_.pop_back();
        return event;
      }
      ++made_;
      free_.reserve(made_);  // so that giving one back never fails
    }
    const DeviceGuard guard(device_);
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, flags_), "cudaEventCreateWithFlags", device_);
    return event;
  }

  void give_back(cudaEvent_t event) noexcept {
    const std::lock_guard lock(mutex_);
    free_.push_back(event);
  }

 private:
  const Device device_;
  const unsigned flags_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
  std::size_t made_ = 0;
};

// A point in the work of a CUDA stream.
class CudaEvent final : public detail::EventState {
 public:
  // Records the work issued to `stream`, whose handle is given, so far.
  CudaEvent(EventPool& pool, const detail::StreamState& stream, cudaStream_t handle)
      : pool_(pool), stream_(stream), event_(pool.take()) {
    const cudaError_t status = cudaEventRecord(event_, handle);
    number_ = next_number();
    if (status == cudaSuccess) return;
    pool_.give_back(event_);
    fail(status, "cudaEventRecord", pool_.device());
  }
  ~CudaEvent() override { pool_.give_back(event_); }

  cudaEvent_t handle() const {
    enter_gpu(pool_.device());
    return event_;
  }
  // `self` is this one.
  OtherGpus::Point point(const detail::EventPtr& self) const {
    return {pool_.device(), &stream_, number_, self};
  }

  bool query() const override {
    return is_done(cudaEventQuery(handle()), "cudaEventQuery", pool_.device());
  }
  void synchronize() const override {
    wait_for_end();
    LostResults::check(pool_.device());
    OtherGpus::check(pool_.device());
  }
  void wait_for_end() const override {
    check(cudaEventSynchronize(handle()), "cudaEventSynchronize", pool_.device());
  }
  bool is_of(const detail::StreamState& stream) const { return &stream == &stream_; }
  bool precedes_new_work_of(const detail::StreamState& stream) const override {
    return is_of(stream) || query();
  }

 private:
  static std::uint64_t next_number() {
    static constinit std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed);
  }

  EventPool& pool_;
  const detail::StreamState& stream_;
  const cudaEvent_t event_;
  std::uint64_t number_ = 0;
};

}  // namespace lockstep::cuda
