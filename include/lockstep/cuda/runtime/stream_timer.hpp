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
#include <lockstep/profile/recording/recorder.hpp>
#include <lockstep/profile/recording/recording.hpp>
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

  // The place that a stream has come to.
  class Mark final : public profile::detail::DeviceMark {
   public:
    Mark(GpuClock& clock, const CudaStream& stream)
        : clock_(clock),
          reference_(clock.recent_reference()),
          event_(clock.events_, stream, stream.bare_handle()) {}

    std::optional<std::int64_t> time() const noexcept override {
      if (detail::streams_are_gone()) return {};
      try {
        event_.wait_for_end();
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, reference_.event->handle(), event_.handle()),
              "cudaEventElapsedTime", clock_.events_.device());
        return reference_.time + static_cast<std::int64_t>(1e6 * static_cast<double>(milliseconds));
      } catch (...) {
        return {};
      }
    }

   private:
    const GpuClock& clock_;
    const Reference reference_;
    const CudaEvent event_;
  };

  explicit GpuClock(Device device) : events_(device, cudaEventDefault), own_(device, events_) {}

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
      event->wait_for_end();
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

// Marks a place for the Profiler (profile::detail::MakeMark).
inline profile::detail::DeviceMark* mark_stream(const profile::Row& row,
                                                detail::StreamState* stream) noexcept {
  if (detail::streams_are_gone()) return nullptr;
  try {
    auto& on = static_cast<CudaStream&>(stream ? *stream : current_stream(row.device()).state());
    return new GpuClock::Mark(per_device<GpuClock>(on.device()), on);
  } catch (...) {
    return nullptr;
  }
}

}  // namespace lockstep::cuda
