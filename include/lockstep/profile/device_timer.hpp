// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/stream.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/profile/recording/row.hpp>

#include <atomic>
#include <cstdint>
#include <optional>

// What the CUDA side fills in, so that no header of a lower layer includes one of CUDA's.
namespace lockstep::profile::detail {

// Marks places in the work of GPUs' streams, and tells when the streams came to them.
//
// Threads: any, several at once. Objects live until the process ends.
class DeviceTimer : lockstep::detail::NonCopyable {
 public:
  // Marks the place behind what has been issued so far to `stream` or, if that is null, to the
  // calling thread's current stream of the row's device. Null if that cannot be done.
  virtual void* mark(const Row& row, lockstep::detail::StreamState* stream) noexcept = 0;
  // Waits until the stream has come to the mark. Returns when that was, by the clock of the
  // recorder, or nothing if the device does not say. The mark is used up.
  virtual std::optional<std::int64_t> resolve(void* mark) noexcept = 0;
  // Uses up a mark without waiting.
  virtual void discard(void* mark) noexcept = 0;

 protected:
  ~DeviceTimer() = default;
};

// Put here before `main` in a program with the CUDA side.
inline constinit std::atomic<DeviceTimer*> device_timer{nullptr};

// Where the names of ranges go besides the recorder: NVTX, once a tool listens.
struct RangeListener {
  void (*push)(const char* name);
  void (*pop)();
};

}  // namespace lockstep::profile::detail
