// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/device_properties.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/replicas/balance.hpp>
#include <lockstep/warning.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE std::optional<std::string> imbalance(
    const std::vector<Device>& devices, const std::vector<DeviceProperties>& properties) {
  for (const bool by_memory : {true, false}) {
    const auto property = [by_memory](const DeviceProperties& each) -> double {
      return by_memory ? static_cast<double>(each.total_memory) : each.multi_processor_count;
    };
    const auto [least, most] = std::minmax_element(
        properties.begin(), properties.end(),
        [&](const auto& a, const auto& b) { return property(a) < property(b); });
    if (least == most || property(*least) >= 0.75 * property(*most)) continue;
    const Device low = devices[static_cast<std::size_t>(least - properties.begin())];
    const Device high = devices[static_cast<std::size_t>(most - properties.begin())];
    return str("There is an imbalance between your devices. You may want to exclude ", low,
               " which has less than 75% of the memory or cores of ", high,
               ". You can do so by setting the device_ids of DataParallel",
               low.is_cuda() ? ", or the CUDA_VISIBLE_DEVICES environment variable" : "",
               "; Split::weights gives it fewer rows.");
  }
  return {};
}

LOCKSTEP_INLINE void check_devices(const std::vector<Device>& devices) {
  check<ValueError>(!devices.empty(), "DataParallel: expected at least one device");
  for (const Device device : devices) check_device(device);
}

LOCKSTEP_INLINE void check_balance(const std::vector<Device>& devices) {
  std::vector<DeviceProperties> properties;
  for (const Device device : devices) properties.push_back(device_properties(device));
  if (const auto warning = imbalance(devices, properties)) warn(*warning);
}

}  // namespace lockstep::detail
