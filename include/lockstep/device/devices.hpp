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

// Counts this machine's GPUs; if there are none, says why. The CUDA side of the library puts its
// function here before `main`. Empty in a program built without CUDA.
using CountDevices = int (*)(std::string* reason);
inline constinit std::atomic<CountDevices> cuda_device_counter{nullptr};

inline constexpr int kMaxHostDevices = 1024;
inline constexpr int kMaxCudaDevices = 64;

// The number in an environment variable; none if it is not set or empty. A DeviceError unless it is
// from `least` to `most`.
std::optional<int> count_in_environment(const char* variable, int least, int most);

// LOCKSTEP_CUDA_DEVICES, which the CUDA side obeys.
inline std::optional<int> requested_cuda_count() {
  return count_in_environment("LOCKSTEP_CUDA_DEVICES", 0, kMaxCudaDevices);
}

// `LOCKSTEP_HOST_DEVICES`, or the number of cores that this process may use. A DeviceError unless
// it is from 1 to kMaxHostDevices.
int default_host_count();

}  // namespace detail

// Sets the number of host devices of this process, instead of `LOCKSTEP_HOST_DEVICES` or the number
// of cores. Call it before the first use of any device (by `devices`, a tensor, a stream), which
// freezes the number; then another number is a DeviceError.
//
// **Torch counterpart.** None; XLA's `--xla_force_host_platform_device_count`.
void set_host_device_count(int count);

// The number of devices of a type: host devices for `cpu`, GPUs for `cuda` (0 without a driver).
//
// **Torch counterpart.** torch.cuda.device_count.
// **Threads and exceptions.** Any thread. The first call reads the environment and fixes the
// number; an invalid value there is a DeviceError.
int device_count(DeviceType type);

// Why there is no GPU: the driver's own words, or that LOCKSTEP_CUDA_DEVICES is 0, or that the
// program was built without CUDA. Empty if there are GPUs.
//
// **Threads and exceptions.** As device_count of `cuda`.
std::string no_cuda_reason();

// Throws a DeviceError unless the device exists. Plain `cpu` always does.
void check_device(Device device);

std::vector<Device> devices(DeviceType type);

// Every GPU that the program can use or, without any, every host device.
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
