// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/cores.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/error.hpp>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::detail {

// The number of host devices once it is decided, 0 before. Every operation checks devices several
// times by it. No other data is published with it, so relaxed order is enough.
inline constinit std::atomic<int> known_host_count{0};

LOCKSTEP_INLINE std::optional<int> count_in_environment(const char* variable, int least, int most) {
  const char* const text = std::getenv(variable);
  if (!text || !*text) return std::nullopt;
  const std::string_view digits = text;
  int count = 0;
  const char* end = digits.data() + digits.size();
  const auto [last, status] = std::from_chars(digits.data(), end, count);
  check<DeviceError>(status == std::errc{} && last == end && count >= least && count <= most,
                     variable, " is \"", digits, "\": expected a number from ", least, " to ",
                     most);
  return count;
}

LOCKSTEP_INLINE int default_host_count() {
  const auto count = count_in_environment("LOCKSTEP_HOST_DEVICES", 1, kMaxHostDevices);
  return count ? *count : static_cast<int>(usable_cores());
}

// The number of devices of each type, decided at first use and the same until the process ends.
// `mutex` guards each count until its flag is set; from then on it is only read. As long as no
// counter is registered, the number of GPUs stays open: a static initialiser may ask before the one
// that registers the CUDA side has run.
struct DeviceCounts {
  std::mutex mutex;
  std::atomic<bool> host_decided{false};
  std::atomic<bool> cuda_decided{false};
  int requested_host = 0;  // 0: not asked for by a call
  int host_count = 0;
  int cuda_count = 0;
  std::string no_cuda_reason;  // empty if there are GPUs

  static DeviceCounts& instance() {
    static DeviceCounts& counts = *new DeviceCounts;
    return counts;
  }

  int host() {
    if (!host_decided.load(std::memory_order_acquire)) {
      const std::lock_guard lock(mutex);
      if (!host_decided.load(std::memory_order_relaxed)) {
        (void)requested_cuda_count();  // so that a wrong value is noticed without CUDA, too
        host_count = requested_host > 0 ? requested_host : default_host_count();
        known_host_count.store(host_count, std::memory_order_relaxed);
        host_decided.store(true, std::memory_order_release);
      }
    }
    return host_count;
  }

  int cuda() {
    const CountDevices count = cuda_device_counter.load(std::memory_order_acquire);
    if (!count) return 0;
    if (!cuda_decided.load(std::memory_order_acquire)) {
      const std::lock_guard lock(mutex);
      if (!cuda_decided.load(std::memory_order_relaxed)) {
        cuda_count = count(&no_cuda_reason);
        cuda_decided.store(true, std::memory_order_release);
      }
    }
    return cuda_count;
  }
};

// check_device for all devices that its quick check does not know to exist.
[[gnu::cold, gnu::noinline]] inline void check_device_at_length(Device device) {
  const int count = device_count(device.type);
  if (device.index >= 0 && device.index < count) return;
  if (device.is_cuda() && count == 0) {
    throw DeviceError(
        str("device ", device, ": this machine has no CUDA device (", no_cuda_reason(), ")"));
  }
  throw DeviceError(str("device ", device, " is out of range: there are ", count,
                        device.is_cpu() ? " host devices (set LOCKSTEP_HOST_DEVICES or call"
                                          " set_host_device_count for more)"
                                        : " CUDA devices"));
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
  auto& counts = detail::DeviceCounts::instance();
  const std::lock_guard lock(counts.mutex);
  const bool decided = counts.host_decided.load(std::memory_order_relaxed);
  check<DeviceError>(!decided || counts.host_count == count, "set_host_device_count(", count,
                     "): the devices are in use already, with ", counts.host_count,
                     " host devices; call it first");
  counts.requested_host = count;
}

LOCKSTEP_INLINE int device_count(DeviceType type) {
  auto& counts = detail::DeviceCounts::instance();
  return type == DeviceType::cpu ? counts.host() : counts.cuda();
}

LOCKSTEP_INLINE std::string no_cuda_reason() {
  auto& counts = detail::DeviceCounts::instance();
  if (!detail::cuda_device_counter.load(std::memory_order_acquire)) return "built without CUDA";
  (void)counts.cuda();
  return counts.no_cuda_reason;
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
