// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/profile/recording/row.hpp>

#include <atomic>
#include <cstdint>

namespace lockstep::profile {

namespace detail {

class DeviceMark;      // profile/device_mark.hpp
struct RangeListener;  // profile/device_mark.hpp

// 0 if nothing is recorded: then a range looks at nothing else. Otherwise bit 0 says that there is
// a RangeListener, and the bits above are the number of the session that is recorded, if any.
//
// Written with the recorder's mutex held. It publishes nothing: a thread that sees a session in it
// takes the mutex before it first uses that session's log.
inline constinit std::atomic<std::uint64_t> recording{0};

inline constinit std::atomic<const RangeListener*> range_listener{nullptr};

// A range that has ended. Times are nanoseconds of the steady clock.
struct RecordedEvent {
  const char* name;  // a literal, or kept by the log
  std::int64_t begin;
  std::int64_t end;
  std::uint64_t bytes;
  DeviceMark* begin_mark;  // the event's own; null for what ran on the host
  DeviceMark* end_mark;
  Row row;
};

}  // namespace detail

// True while ranges are recorded, or a tool listens to their names. Code that computes something
// for a range alone asks this first.
inline bool enabled() { return detail::recording.load(std::memory_order_relaxed) != 0; }

}  // namespace lockstep::profile
