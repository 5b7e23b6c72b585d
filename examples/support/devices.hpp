// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "arguments.hpp"

#include <lockstep/device/devices.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iostream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace example {

// Says why there is no GPU: where GPUs were asked for, or the program could have used them.
inline void say_without_gpus(bool asked_for) {
  namespace ls = lockstep;
  const std::string reason = ls::no_cuda_reason();
  if (ls::device_count(ls::DeviceType::cuda) > 0) return;
  if (!asked_for && reason == "built without CUDA") return;
  std::cerr << "no CUDA device (" << reason << "): running on host devices\n";
}

// The devices that `--devices` asks for: a list (`cpu:0,cpu:1`); a number, of GPUs or, without one,
// of host devices, which are made as many as that; nothing for those of devices(). GPUs in
// a list are taken for host devices where there is none.
//
// To be called before anything else uses a device.
inline std::vector<lockstep::Device> choose_devices(std::string_view text) {
  namespace ls = lockstep;
  say_without_gpus(text.find("cuda") != text.npos);
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
    start = comma + 1;
  }
  const bool gpus = std::any_of(devices.begin(), devices.end(),
                                [](const ls::Device& device) { return device.is_cuda(); });
  if (gpus && ls::device_count(ls::DeviceType::cuda) == 0) {
    ls::set_host_device_count(static_cast<int>(devices.size()));
    return ls::host_devices();
  }
  for (const ls::Device& device : devices) ls::check_device(device);
  return devices;
}

}  // namespace example
