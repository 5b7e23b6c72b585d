// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/profile/record_function.hpp>
#include <lockstep/profile/recorder.hpp>
#include <lockstep/profile/row.hpp>

#include <atomic>
#include <cstdint>

namespace lockstep::profile {

LOCKSTEP_INLINE RecordFunction::RecordFunction(Literal name, Row row,
                                               RangeDetails details) noexcept {
  const std::uint64_t state = detail::recording.load(std::memory_order_relaxed);
  if (state != 0) [[unlikely]]
    begin(state, name.text(), row, details);
}

LOCKSTEP_INLINE RecordFunction::~RecordFunction() {
  if (state_ != 0) [[unlikely]]
    end();
}

LOCKSTEP_INLINE void* RecordFunction::mark() const noexcept {
  if (!event_.row.is_gpu()) return nullptr;
  auto* const timer = detail::device_timer.load(std::memory_order_acquire);
  return timer != nullptr ? timer->mark(event_.row, stream_) : nullptr;
}

}  // namespace lockstep::profile
