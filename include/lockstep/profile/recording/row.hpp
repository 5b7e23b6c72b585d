// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>

#include <cstdint>
#include <string>

namespace lockstep::profile {

// Where a range is drawn in a timeline: in the row of its thread, or of a device's compute or copy
// stream.
struct Row {
  enum class Kind : std::uint8_t { thread, compute, copy };

  Kind kind = Kind::thread;
  DeviceType type = DeviceType::cpu;  // this and `index`: the device, in less room than a Device
  std::int16_t index = -1;

  constexpr Row() = default;
  constexpr Row(Device device, Kind row_kind = Kind::compute)
      : kind(row_kind), type(device.type), index(static_cast<std::int16_t>(device.index)) {}

  constexpr Device device() const { return {type, index}; }

  // True if the range is timed on a GPU, which does the work later than the issuing thread.
  constexpr bool is_gpu() const { return device().is_cuda() && kind != Kind::thread; }

  // "cpu:0 compute", "cuda:1 copy"; empty for a thread's row, which has the thread's name.
  std::string str() const {
    if (kind == Kind::thread) return {};
    return device().str() + (kind == Kind::compute ? " compute" : " copy");
  }

  friend constexpr bool operator==(const Row&, const Row&) = default;
};

}  // namespace lockstep::profile
