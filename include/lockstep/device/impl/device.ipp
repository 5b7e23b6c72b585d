// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/number_in_text.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

LOCKSTEP_INLINE std::string Device::str() const {
  const std::string name = is_cpu() ? "cpu" : "cuda";
  return index == -1 ? name : name + ":" + std::to_string(index);
}

LOCKSTEP_INLINE Device Device::parse(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const bool cuda = name == "cuda";
  int index = cuda ? 0 : -1;
  bool good = cuda || name == "cpu";
  if (good && colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    index = detail::number_in<int>(digits).value_or(-1);
    good = index >= 0 && digits[0] != '-';
  }
  check<DeviceError>(good, "unknown device string \"", text,
                     "\": expected cpu, cpu:<index>, cuda or cuda:<index>");
  return Device(cuda ? DeviceType::cuda : DeviceType::cpu, index);
}

}  // namespace lockstep
