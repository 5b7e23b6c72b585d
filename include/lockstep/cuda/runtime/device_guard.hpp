// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/runtime/error.hpp>
#include <lockstep/cuda/runtime/logical_devices.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/non_copyable.hpp>

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>

namespace lockstep::cuda {

// True if this process has a context on a GPU, which takes hundreds of MiB there, or if that cannot
// be told. Once it has one it keeps it.
inline bool has_context(int gpu) {
  static constinit std::array<std::atomic<bool>, detail::kMaxCudaDevices> known{};
  const auto place = static_cast<std::size_t>(gpu);
  if (place >= known.size() || known[place].load(std::memory_order_relaxed)) return true;
  // The runtime has no such query, so the driver is asked, which is not linked. It numbers the GPUs
  // as the runtime does.
  using GetState = int (*)(int gpu, unsigned* flags, int* active);
  static const auto get_state = []() -> GetState {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    constexpr unsigned kSince = 7000;
    if (cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &function, kSince,
                                         cudaEnableDefault, &found) != cudaSuccess) {
      (void)cudaGetLastError();
      return nullptr;
    }
    return found == cudaDriverEntryPointSuccess ? reinterpret_cast<GetState>(function) : nullptr;
  }();
  unsigned flags = 0;
  int active = 1;
  if (get_state && get_state(gpu, &flags, &active) == 0 && active == 0) return false;
  known[place].store(true, std::memory_order_relaxed);
  return true;
}

// Makes a device's GPU the calling thread's current one until destroyed. Kernels, and whatever is
// created without naming a stream, go to the current GPU.
//
// The destructor does not make a GPU current again that the process does not use: that would give
// it a context, and each of several processes on a machine one on GPU 0, which is every thread's at
// first. The thread stays on this guard's GPU until a guard finds that the other GPU is in use;
// likewise where the runtime refuses.
class DeviceGuard : detail::NonCopyable {
 public:
  explicit DeviceGuard(Device device) {
    int current = 0;
    check(cudaGetDevice(&current), "cudaGetDevice", device);
    Left& left = left_gpu();
    before_ = left.wanted >= 0 && left.current == current ? left.wanted : current;
    const int gpu = gpu_of(device);
    if (gpu != current) check(cudaSetDevice(gpu), "cudaSetDevice", device);
    left.wanted = -1;
    changed_ = gpu != before_ || gpu != current;
  }
  ~DeviceGuard() {
    if (!changed_) return;
    if (has_context(before_) && cudaSetDevice(before_) == cudaSuccess) return;
    int current = 0;
    if (cudaGetDevice(&current) == cudaSuccess) left_gpu() = {before_, current};
    (void)cudaGetLastError();
  }

 private:
  // A guard has left the thread at `current` instead of at `wanted`, its GPU before; negative if
  // none has. Void once the program has made another GPU current.
  struct Left {
    int wanted = -1;
    int current = -1;
  };
  static Left& left_gpu() {
    static constinit thread_local Left left;
    return left;
  }

  int before_ = 0;
  bool changed_ = false;
};

// Called before a call of the runtime that names a stream or an event of a device, but needs no
// current GPU: a thread that has made none current yet would get GPU 0 by it, with a context there.
inline void enter_gpu(Device device) noexcept {
  static constinit thread_local bool entered = false;
  if (entered) [[likely]]
    return;
  // The call that follows tells of an error.
  entered = detail::thrown_by([&] { const DeviceGuard guard(device); }) == nullptr;
}

}  // namespace lockstep::cuda
