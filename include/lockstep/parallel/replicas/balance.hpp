// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/device_properties.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>

#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

// The warning's text if a device has less than 75 % of the memory or the multiprocessors of
// another. properties[i] are devices[i]'s.
//
// **Torch counterpart.** torch.nn.parallel.data_parallel._check_balance.
std::optional<std::string> imbalance(const std::vector<Device>& devices,
                                     const std::vector<DeviceProperties>& properties);

// Throws a ValueError for no devices and a DeviceError for one that does not exist.
void check_devices(const std::vector<Device>& devices);

void check_balance(const std::vector<Device>& devices);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/replicas/impl/balance.ipp>
#endif
