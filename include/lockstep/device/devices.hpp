// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>

#include <atomic>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

namespace detail {

// Counts the GPUs of this machine; the CUDA side of the library puts its function here before
// `main`. If it returns 0 it says why. Empty in a program that was built without CUDA.
using CountDevices = int (*)(std::string* reason);
inline constinit std::atomic<CountDevices> cuda_device_counter{nullptr};

inline constexpr int kMaxHostDevices = 1024;
inline constexpr int kMaxCudaDevices = 64;

// The number in an environment variable; nothing if that is not set or empty. Throws a DeviceError
// unless it is from `least` to `most`.
std::optional<int> count_in_environment(const char* variable, int least, int most);

// LOCKSTEP_CUDA_DEVICES, which the CUDA side obeys.
inline std::optional<int> requested_cuda_count() {
  return count_in_environment("LOCKSTEP_CUDA_DEVICES", 0, kMaxCudaDevices);
}

// `LOCKSTEP_HOST_DEVICES`, or the number of cores that this process may use. Throws a DeviceError
// for a value that is no number from 1 to kMaxHostDevices.
int default_host_count();

}  // namespace detail

// Sets how many host devices this process has, in place of `LOCKSTEP_HOST_DEVICES` or the number of
// cores. Must be called before the devices are first used (by `devices`, a tensor, a stream): the
// list is frozen then, and another number is a DeviceError.
//
// **Torch counterpart.** None; XLA's `--xla_force_host_platform_device_count`.
void set_host_device_count(int count);

// The number of devices of a type: host devices for `cpu`, GPUs for `cuda` (0 without a driver).
//
// **Torch counterpart.** torch.cuda.device_count.
// **Threads and exceptions.** Any thread. The first call decides the number and reads the
// environment; a value there that is no valid number is a DeviceError.
int device_count(DeviceType type);

// Why there is no GPU: the driver's own words, that LOCKSTEP_CUDA_DEVICES is 0, or that the program
// was built without CUDA. Empty if there are some.
//
// **Threads and exceptions.** As device_count of `cuda`.
std::string no_cuda_reason();

// Throws a DeviceError unless the device exists on this machine. Plain `cpu` always does.
void check_device(Device device);

// All devices of one type, in order.
std::vector<Device> devices(DeviceType type);

// Every GPU that the program can use; without one, every host device.
//
// **Torch counterpart.** The default of DataParallel's `device_ids`.
inline std::vector<Device> devices() {
  return devices(device_count(DeviceType::cuda) > 0 ? DeviceType::cuda : DeviceType::cpu);
}

inline std::vector<Device> host_devices() { return devices(DeviceType::cpu); }

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/device/impl/devices.ipp>
#endif
