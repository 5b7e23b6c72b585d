// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/stream.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/profile/recording/row.hpp>

#include <atomic>
#include <cstdint>
#include <optional>

namespace lockstep::profile {

namespace detail {

// The CUDA side fills in the next four, so that no lower layer includes a CUDA header.

// A place in the work of a GPU's stream. Any thread may use and destroy it.
class DeviceMark : lockstep::detail::NonCopyable {
 public:
  virtual ~DeviceMark() = default;
  // Waits until the stream has reached the mark. Returns the time of that by the recorder's clock,
  // or nothing if the device cannot tell.
  virtual std::optional<std::int64_t> time() const noexcept = 0;
};

// Marks the end of the work issued so far to `stream` or, if null, to the calling thread's current
// stream of the row's device. The caller owns the mark; null if there is none.
using MakeMark = DeviceMark* (*)(const Row& row, lockstep::detail::StreamState* stream) noexcept;

// Set before `main` in a program with the CUDA side.
inline constinit std::atomic<MakeMark> make_mark{nullptr};

// Gets the names of ranges besides the recorder: NVTX, once a tool listens.
struct RangeListener {
  void (*push)(const char* name);
  void (*pop)();
};

// 0 if nothing is recorded; then a range does nothing. Otherwise bit 0 tells that there is a
// RangeListener, and the other bits are the number of the current session, or 0.
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

// True while ranges are recorded, or a tool listens to their names. Check it before computing
// something only for a range.
inline bool enabled() { return detail::recording.load(std::memory_order_relaxed) != 0; }

}  // namespace lockstep::profile
