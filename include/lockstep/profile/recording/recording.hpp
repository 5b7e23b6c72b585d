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

// The CUDA side fills in the next four, so that no header of a lower layer includes one of CUDA's.

// A place in the work of a GPU's stream. Any thread may ask it and destroy it.
class DeviceMark : lockstep::detail::NonCopyable {
 public:
  virtual ~DeviceMark() = default;
  // Waits until the stream has come here. Returns when that was, by the clock of the recorder, or
  // nothing if the device does not say.
  virtual std::optional<std::int64_t> time() const noexcept = 0;
};

// Marks the place behind what has been issued so far to `stream` or, if that is null, to the
// calling thread's current stream of the row's device. The caller owns the mark; null if there can
// be none.
using MakeMark = DeviceMark* (*)(const Row& row, lockstep::detail::StreamState* stream) noexcept;

// Put here before `main` in a program with the CUDA side.
inline constinit std::atomic<MakeMark> make_mark{nullptr};

// Where the names of ranges go besides the recorder: NVTX, once a tool listens.
struct RangeListener {
  void (*push)(const char* name);
  void (*pop)();
};

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
