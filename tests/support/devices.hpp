// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>

#include <cstddef>
#include <vector>

namespace lockstep::testing {

// The first `count` host devices.
inline std::vector<Device> first_devices(std::size_t count) {
  std::vector<Device> devices;
  for (std::size_t i = 0; i < count; ++i)
    devices.emplace_back(DeviceType::cpu, static_cast<int>(i));
  return devices;
}

}  // namespace lockstep::testing
