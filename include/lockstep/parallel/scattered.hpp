// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep {

// One T for each device that has work: scatter returns and prefetch yields it. Part i is for the
// i-th device. parallel_apply, DataParallel and gather take the parts as they are, so that nothing
// is scattered twice.
//
// **Torch counterpart.** The tuple or list that torch.nn.parallel.scatter returns.
// **Devices and streams.** Parts are never moved. A DataParallel, also over one device, and a
// DataParallelCriterion throw a DeviceError for a tensor of part i that is not on the i-th device;
// it names the argument, the part and both devices.
template <class T>
class Scattered {
 public:
  using value_type = T;

  Scattered() = default;
  explicit Scattered(std::vector<T> parts) : parts_(std::move(parts)) {}

  std::size_t size() const { return parts_.size(); }
  bool empty() const { return parts_.empty(); }
  T& operator[](std::size_t i) { return parts_[i]; }
  const T& operator[](std::size_t i) const { return parts_[i]; }
  auto begin() { return parts_.begin(); }
  auto end() { return parts_.end(); }
  auto begin() const { return parts_.begin(); }
  auto end() const { return parts_.end(); }
  const std::vector<T>& parts() const { return parts_; }

 private:
  std::vector<T> parts_;
};

template <class T>
inline constexpr bool is_scattered = false;
template <class T>
inline constexpr bool is_scattered<Scattered<T>> = true;

}  // namespace lockstep
