// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <utility>
#include <vector>

namespace lockstep {

// One T per device that has work, in the order of the devices: what scatter returns and prefetch
// yields. parallel_apply, DataParallel and gather take its parts as they are, so nothing is
// scattered twice.
//
// **Torch counterpart.** The tuple or list that torch.nn.parallel.scatter returns.
// **Devices and streams.** Parts are never moved. DataParallel, even over one device, and
// DataParallelCriterion throw a DeviceError for a tensor of part i that is not on the i-th device;
// it names the argument, the part and both devices.
template <class T>
struct Scattered : std::vector<T> {
  Scattered() = default;
  explicit Scattered(std::vector<T> parts) : std::vector<T>(std::move(parts)) {}

  const std::vector<T>& parts() const { return *this; }
};

template <class T>
inline constexpr bool is_scattered = false;
template <class T>
inline constexpr bool is_scattered<Scattered<T>> = true;

}  // namespace lockstep
