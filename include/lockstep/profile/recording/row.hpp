// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <concepts>
#include <cstdint>
#include <string>

namespace lockstep::profile {

// Where in a timeline a range is drawn: the row of the thread that makes it, or of a device's
// compute or copy stream.
//
// It is made from a Device by a template, since that type is of a layer above. A row knows only its
// type and index.
struct Row {
  enum class Kind : std::uint8_t { thread, compute, copy };

  Kind kind = Kind::thread;
  bool cuda = false;
  std::int16_t index = -1;

  constexpr Row() = default;
  template <class Device>
  requires requires(const Device& device) {
    { device.is_cuda() } -> std::same_as<bool>;
    { device.index } -> std::convertible_to<int>;
  }
  constexpr Row(const Device& device, Kind row_kind = Kind::compute)
      : kind(row_kind), cuda(device.is_cuda()), index(static_cast<std::int16_t>(device.index)) {}

  // True if the range is timed on a GPU: what the GPU does, it does after the thread that issues
  // it.
  constexpr bool is_gpu() const { return cuda && kind != Kind::thread; }

  // "cpu:0 compute", "cuda:1 copy"; nothing for a thread's row, which is named after the thread.
  std::string str() const {
    if (kind == Kind::thread) return {};
    std::string name = cuda ? "cuda" : "cpu";
    if (index >= 0) name += ':' + std::to_string(index);
    return name + (kind == Kind::compute ? " compute" : " copy");
  }

  friend constexpr bool operator==(const Row&, const Row&) = default;
};

}  // namespace lockstep::profile
