// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "arguments.hpp"

#include <lockstep/device/devices.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace example {

// The devices that `--devices` asks for: a list (`cpu:0,cpu:1`); a number, of GPUs or, without one,
// of host devices, which are made as many as that; nothing for every device of the machine.
//
// To be called before anything else uses a device.
inline std::vector<lockstep::Device> choose_devices(std::string_view text) {
  namespace ls = lockstep;
  if (text.empty()) return ls::devices();

  int count = 0;
  const char* end = text.data() + text.size();
  const auto [last, status] = std::from_chars(text.data(), end, count);
  if (status == std::errc{} && last == end) {
    if (count < 1) throw UsageError("--devices needs at least one device");
    const int gpus = ls::device_count(ls::DeviceType::cuda);
    if (gpus == 0) ls::set_host_device_count(count);
    std::vector<ls::Device> devices = ls::devices();
    ls::check<ls::DeviceError>(static_cast<std::size_t>(count) <= devices.size(), "--devices ",
                               count, ": this machine has ", gpus, " CUDA devices");
    devices.resize(static_cast<std::size_t>(count));
    return devices;
  }

  std::vector<ls::Device> devices;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    devices.emplace_back(text.substr(start, comma - start));
    ls::check_device(devices.back());
    start = comma + 1;
  }
  return devices;
}

}  // namespace example
