// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/profile/recording/row.hpp>

#include <cstdint>

namespace lockstep::profile::detail {

// A range that has ended. Times are nanoseconds of the steady clock.
struct RecordedEvent {
  const char* name;  // a literal, or kept by the log
  std::int64_t begin;
  std::int64_t end;
  std::uint64_t bytes;
  void* begin_mark;  // of the DeviceTimer; null for what ran on the host
  void* end_mark;
  Row row;
};

// Uses up the marks that the event has of a GPU (profile/recording/thread_log.hpp).
void discard(const RecordedEvent& event) noexcept;

}  // namespace lockstep::profile::detail
