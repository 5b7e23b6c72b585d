// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/runtime/cuda_event.hpp>
#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/cuda/runtime/error.hpp>
#include <lockstep/cuda/runtime/per_device.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/profile/device_timer.hpp>
#include <lockstep/profile/recording/recorder.hpp>
#include <lockstep/profile/recording/row.hpp>

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

namespace lockstep::cuda {

// Tells when one GPU came to certain places of its streams, by the clock of the recorder.
//
// The runtime tells only how far two events are apart, as a float of milliseconds. So each mark
// refers to an earlier event of which the time is known, because the host has waited for it on a
// stream that has nothing else to do; every ten seconds there is another one, which keeps the
// rounding at a microsecond. A time is never too early, and so not before the host issued the work;
// it may be too late by the time that the host takes to hear of an event.
//
// Threads: any; `mutex_` guards `reference_`. Lives until the process ends.
class GpuClock {
 public:
  // An event, and when it happened.
  struct Reference {
    std::shared_ptr<const CudaEvent> event;
    std::int64_t time = 0;
  };
  struct Mark {
    const GpuClock& clock;
    const Reference reference;
    const CudaEvent event;

    // The place that the stream has come to.
    Mark(GpuClock& of, const CudaStream& stream)
        : clock(of),
          reference(of.recent_reference()),
          event(of.events_, stream, stream.bare_handle()) {}
  };

  explicit GpuClock(Device device) : events_(device, cudaEventDefault), own_(device, events_) {}

  // Waits for the mark.
  static std::int64_t time_of(const Mark& mark) {
    mark.event.wait();
    const CudaEvent& reference = *mark.reference.event;
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, reference.handle(), mark.event.handle()),
          "cudaEventElapsedTime", mark.clock.events_.device());
    return mark.reference.time + static_cast<std::int64_t>(1e6 * static_cast<double>(milliseconds));
  }

 private:
  Reference recent_reference() {
    constexpr std::int64_t kTenSeconds = 10'000'000'000;
    const std::lock_guard lock(mutex_);
    if (!reference_.event || profile::detail::now() - reference_.time > kTenSeconds) {
      reference_ = make_reference();
    }
    return reference_;
  }

  // The best of a few tries: the one that took the least time.
  Reference make_reference() {
    Reference best;
    std::int64_t shortest = INT64_MAX;
    for (int i = 0; i < 3; ++i) {
      const std::int64_t before = profile::detail::now();
      const auto event = std::make_shared<const CudaEvent>(events_, own_, own_.bare_handle());
      event->wait();
      const std::int64_t after = profile::detail::now();
      if (after - before >= shortest) continue;
      shortest = after - before;
      best = {event, after};
    }
    return best;
  }

  EventPool events_;
  CudaStream own_;
  std::mutex mutex_;
  Reference reference_;
};

// Times the ranges of a Profiler on GPUs.
class StreamTimer final : public profile::detail::DeviceTimer {
 public:
  using StreamState = detail::StreamState;

  static StreamTimer& instance() {
    static StreamTimer& timer = *new StreamTimer;
    return timer;
  }

  void* mark(const profile::Row& row, StreamState* stream) noexcept override {
    if (detail::streams_are_gone()) return nullptr;
    try {
      auto& on = static_cast<CudaStream&>(stream ? *stream : current_stream(row.device()).state());
      return new GpuClock::Mark(per_device<GpuClock>(on.device()), on);
    } catch (...) {
      return nullptr;
    }
  }

  std::optional<std::int64_t> resolve(void* mark) noexcept override {
    const std::unique_ptr<const GpuClock::Mark> owned(static_cast<GpuClock::Mark*>(mark));
    if (detail::streams_are_gone()) return {};
    try {
      return GpuClock::time_of(*owned);
    } catch (...) {
      return {};
    }
  }

  void discard(void* mark) noexcept override { delete static_cast<GpuClock::Mark*>(mark); }

 private:
  StreamTimer() = default;
};

}  // namespace lockstep::cuda
