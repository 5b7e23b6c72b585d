// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/tensor/device_random.hpp>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

namespace lockstep::detail {

LOCKSTEP_INLINE RandomRange DeviceRandom::take(Device device, std::size_t replica,
                                               std::size_t count) {
  const std::lock_guard lock(mutex_);
  std::uint64_t& taken = state_.taken[{device, replica}];
  std::uint64_t key = state_.seed;
  for (const auto part :
       {static_cast<std::uint64_t>(device.type), static_cast<std::uint64_t>(device.index + 1),
        static_cast<std::uint64_t>(replica)}) {
    key = mix_bits(key + kGoldenGamma * (part + 1));
  }
  return {key, std::exchange(taken, taken + count)};
}

LOCKSTEP_INLINE DeviceRandom::State DeviceRandom::state() {
  const std::lock_guard lock(mutex_);
  return state_;
}

LOCKSTEP_INLINE void DeviceRandom::set_state(const State& state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
}

}  // namespace lockstep::detail
