// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/io/random_state.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/device_random.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/random.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::io::detail {

inline constexpr const char* kEngineName = "generator";

inline constexpr const char* kDevicesName = "devices";

inline constexpr std::size_t kFields = 4;  // of a sequence: device type, index, replica, taken

inline constexpr std::int64_t kMostDevices = 1 << 20;

template <Element T>
std::vector<T> values_named(const StateDict& state, std::string_view name) {
  for (const NamedTensor& entry : state) {
    if (entry.name != name) continue;
    check<ValueError>(entry.tensor.defined() && entry.tensor.dtype() == dtype_of<T>,
                      "set_random_state: expected ", name, " to be of ", dtype_of<T>);
    return entry.tensor.to_vector<T>();
  }
  lockstep::detail::fail<ValueError>("set_random_state: the state has no ", name);
}

inline lockstep::detail::DeviceRandom::State parse_device_state(
    const std::vector<std::int64_t>& values) {
  const std::size_t count = values.size();
  check<ValueError>(count % kFields == 1, "set_random_state: ", count,
                    " numbers are not a state of the devices");
  lockstep::detail::DeviceRandom::State state{static_cast<std::uint64_t>(values[0]), {}};
  for (std::size_t i = 1; i < count; i += kFields) {
    const std::int64_t type = values[i];
    const std::int64_t index = values[i + 1];
    const bool known = type == static_cast<std::int64_t>(DeviceType::cpu) ||
                       type == static_cast<std::int64_t>(DeviceType::cuda);
    check<ValueError>(known && index >= -1 && index < kMostDevices && values[i + 2] >= 0,
                      "set_random_state: the state of the devices names one that cannot be");
    const Device device(static_cast<DeviceType>(type), static_cast<int>(index));
    state.taken[{device, static_cast<std::size_t>(values[i + 2])}] =
        static_cast<std::uint64_t>(values[i + 3]);
  }
  return state;
}

}  // namespace lockstep::io::detail

namespace lockstep::io {

LOCKSTEP_INLINE StateDict random_state(Generator& generator) {
  const std::string engine = generator.state();
  const auto state = lockstep::detail::device_random().state();
  // The seed, and then kFields numbers for each sequence.
  std::vector<std::int64_t> devices{static_cast<std::int64_t>(state.seed)};
  for (const auto& [sequence, taken] : state.taken) {
    const auto& [device, replica] = sequence;
    devices.insert(devices.end(),
                   {static_cast<std::int64_t>(device.type), device.index,
                    static_cast<std::int64_t>(replica), static_cast<std::int64_t>(taken)});
  }
  return {{detail::kEngineName, tensor(std::vector<std::uint8_t>(engine.begin(), engine.end()))},
          {detail::kDevicesName, tensor(devices)}};
}

LOCKSTEP_INLINE void set_random_state(const StateDict& state, Generator& generator) {
  const auto engine = detail::values_named<std::uint8_t>(state, detail::kEngineName);
  const auto devices =
      detail::parse_device_state(detail::values_named<std::int64_t>(state, detail::kDevicesName));
  generator.set_state(std::string(engine.begin(), engine.end()));
  lockstep::detail::device_random().set_state(devices);
}

}  // namespace lockstep::io
