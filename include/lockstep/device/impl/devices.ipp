// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/cores.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/error.hpp>
#include <lockstep/number_in_text.hpp>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

// The number of host devices; 0 until it is fixed. Every operation checks devices by it. No other
// data is published with it, so relaxed order is enough.
inline constinit std::atomic<int> known_host_count{0};

LOCKSTEP_INLINE std::optional<int> count_in_environment(const char* variable, int least, int most) {
  const char* const text = std::getenv(variable);
  if (!text || !*text) return std::nullopt;
  const auto count = number_in<int>(text);
  check<DeviceError>(count && *count >= least && *count <= most, variable, " is \"", text,
                     "\": expected a number from ", least, " to ", most);
  return count;
}

LOCKSTEP_INLINE int default_host_count() {
  const auto count = count_in_environment("LOCKSTEP_HOST_DEVICES", 1, kMaxHostDevices);
  return count ? *count : static_cast<int>(usable_cores());
}

// Guards the requested number, 0 for none, and that the number is fixed only once.
inline constinit std::mutex host_count_mutex;
inline constinit int requested_host_count = 0;

inline int host_count() {
  if (const int known = known_host_count.load(std::memory_order_relaxed)) return known;
  const std::lock_guard lock(host_count_mutex);
  if (known_host_count.load(std::memory_order_relaxed) == 0) {
    (void)requested_cuda_count();  // so that an invalid value is noticed even without CUDA
    known_host_count.store(requested_host_count > 0 ? requested_host_count : default_host_count(),
                           std::memory_order_relaxed);
  }
  return known_host_count.load(std::memory_order_relaxed);
}

struct CudaDevices {
  explicit CudaDevices(CountDevices count_devices) : count(count_devices(&none_because)) {}

  std::string none_because;  // empty if there are GPUs
  int count;
};

// Fixed at first use until the process ends. Null as long as no counter is registered: a static
// initialiser may ask before the one that registers the CUDA side has run.
inline const CudaDevices* cuda_devices() {
  const CountDevices count = cuda_device_counter.load(std::memory_order_acquire);
  if (!count) return nullptr;
  static const CudaDevices* const found = new CudaDevices(count);
  return found;
}

// check_device for devices that its quick check does not know.
[[gnu::cold, gnu::noinline]] inline void check_device_at_length(Device device) {
  const int count = device_count(device.type);
  if (device.index >= 0 && device.index < count) return;
  if (device.is_cuda() && count == 0) {
    fail<DeviceError>("device ", device, ": this machine has no CUDA device (", no_cuda_reason(),
                      ")");
  }
  fail<DeviceError>("device ", device, " is out of range: there are ", count,
                    device.is_cpu() ? " host devices (set LOCKSTEP_HOST_DEVICES or call"
                                      " set_host_device_count for more)"
                                    : " CUDA devices");
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Device Device::of_index(int index) {
  check<DeviceError>(index >= 0, "device index ", index, ": expected at least 0");
  return {device_count(DeviceType::cuda) > 0 ? DeviceType::cuda : DeviceType::cpu, index};
}

LOCKSTEP_INLINE void set_host_device_count(int count) {
  check<DeviceError>(count >= 1 && count <= detail::kMaxHostDevices,
                     "set_host_device_count: expected 1 to ", detail::kMaxHostDevices, ", got ",
                     count);
  const std::lock_guard lock(detail::host_count_mutex);
  const int known = detail::known_host_count.load(std::memory_order_relaxed);
  check<DeviceError>(known == 0 || known == count, "set_host_device_count(", count,
                     "): the devices are in use already, with ", known,
                     " host devices; call it first");
  detail::requested_host_count = count;
}

LOCKSTEP_INLINE int device_count(DeviceType type) {
  if (type == DeviceType::cpu) return detail::host_count();
  const detail::CudaDevices* const found = detail::cuda_devices();
  return found ? found->count : 0;
}

LOCKSTEP_INLINE std::string no_cuda_reason() {
  const detail::CudaDevices* const found = detail::cuda_devices();
  return found ? found->none_because : "built without CUDA";
}

LOCKSTEP_INLINE void check_device(Device device) {
  // Plain `cpu`, whose index is -1, always passes.
  const auto known =
      static_cast<unsigned>(detail::known_host_count.load(std::memory_order_relaxed));
  if (device.is_cpu() && static_cast<unsigned>(device.index) + 1 <= known) return;
  detail::check_device_at_length(device);
}

LOCKSTEP_INLINE std::vector<Device> devices(DeviceType type) {
  std::vector<Device> all;
  const int count = device_count(type);
  for (int i = 0; i < count; ++i) all.emplace_back(type, i);
  return all;
}

}  // namespace lockstep
