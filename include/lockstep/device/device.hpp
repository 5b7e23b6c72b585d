// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/error.hpp>

#include <compare>
#include <concepts>
#include <cstddef>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>

namespace lockstep {

enum class DeviceType : unsigned char { cpu, cuda };

// Where a tensor lives: a value, printed and parsed as `cpu`, `cpu:0`, `cuda:0`.
//
// `cpu` without an index is ordinary host memory, where data is created and files are read. `cpu:i`
// is a host device: a slice of the CPU that behaves like an accelerator, with its own allocations
// and streams. `cuda:i` is a GPU. A Device is only a name; its first use checks that it exists.
//
// **Torch counterpart.** torch::Device; an indexed `cpu` names a different device here.
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = -1;

  constexpr Device() = default;
  constexpr Device(DeviceType device_type, int device_index)
      : type(device_type), index(device_index) {}

  // Parses `cpu`, `cpu:<i>`, `cuda` (which means `cuda:0`) and `cuda:<i>`. A DeviceError quotes
  // anything else.
  Device(std::string_view text) : Device(parse(text)) {}
  Device(const char* text) : Device(parse(text)) {}
  Device(const std::string& text) : Device(parse(text)) {}

  // Device i of devices(): a GPU if the program can use one, else a host device. A negative i is a
  // DeviceError; one that is too large is noticed at the first use.
  //
  // **Torch counterpart.** torch.device(i).
  template <std::same_as<int> Index>
  Device(Index i) : Device(of_index(i)) {}

  constexpr bool is_cpu() const { return type == DeviceType::cpu; }
  constexpr bool is_cuda() const { return type == DeviceType::cuda; }
  // Ordinary host memory, not one of the host devices.
  constexpr bool is_host_memory() const { return is_cpu() && index == -1; }

  std::string str() const;

  friend constexpr bool operator==(const Device&, const Device&) = default;
  friend constexpr auto operator<=>(const Device&, const Device&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Device& device) {
    return out << device.str();
  }

 private:
  static Device of_index(int index);
  static Device parse(std::string_view text);
};

}  // namespace lockstep

template <>
struct std::hash<lockstep::Device> {
  std::size_t operator()(const lockstep::Device& device) const noexcept {
    return (static_cast<std::size_t>(device.index) + 1) * 2 + (device.is_cuda() ? 1u : 0u);
  }
};

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/device/devices.hpp>  // which defines the device of an index
#include <lockstep/device/impl/device.ipp>
#endif
