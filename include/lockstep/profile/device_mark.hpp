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

}  // namespace lockstep::profile::detail
