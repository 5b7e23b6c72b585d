// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/cuda_device.hpp>
#include <lockstep/cuda/device_guard.hpp>
#include <lockstep/cuda/error.hpp>
#include <lockstep/cuda/logical_devices.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/warning.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <mutex>
#include <utility>

namespace lockstep::cuda {

// Which GPUs can read each other's memory where it is: found out once for each pair of devices,
// with real data, since some machines say that they can and then deliver something else.
//
// Threads: any; `mutex_` guards the table.
class PeerAccess {
 public:
  static PeerAccess& instance() {
    static PeerAccess& access = *new PeerAccess;
    return access;
  }

  // True if kernels and copies of `reader` can use the memory of `owner`.
  bool can_access(Device reader, Device owner) {
    if (gpu_of(reader) == gpu_of(owner)) return true;
    const std::lock_guard lock(mutex_);
    Answer& answer =
        answers_[static_cast<std::size_t>(reader.index)][static_cast<std::size_t>(owner.index)];
    if (answer == Answer::unknown) answer = try_out(reader, owner) ? Answer::yes : Answer::no;
    return answer == Answer::yes;
  }

 private:
  enum class Answer : unsigned char { unknown, yes, no };

  static bool try_out(Device reader, Device owner) {
    int can = 0;
    check(cudaDeviceCanAccessPeer(&can, gpu_of(reader), gpu_of(owner)), "cudaDeviceCanAccessPeer",
          reader);
    if (can == 0) return false;
    CudaDevice& from = CudaDevice::at(owner);
    from.memory.allow_access(gpu_of(reader));
    if (arrives(CudaDevice::at(reader), from)) return true;
    warn(lockstep::detail::str("copies from ", owner, " to ", reader,
                               " do not arrive as they were sent, although the driver offers them; "
                               "they go through host memory instead"));
    return false;
  }

  // Sends a pattern from `from` to `to` and looks at it on the host.
  static bool arrives(CudaDevice& to, CudaDevice& from) {
    constexpr std::size_t kBytes = Staging::kSmall;
    Staging::Block block(to.staging, kBytes, to.bridge);
    for (std::size_t i = 0; i < kBytes; ++i) {
      block.data()[i] = static_cast<std::byte>(i * 167 + i / 251);
    }
    const cudaStream_t stream = to.bridge.handle();
    void* const source = from.memory.allocate(kBytes, stream);
    void* const target = to.memory.allocate(kBytes, stream);
    check(cudaMemcpyAsync(source, block.data(), kBytes, cudaMemcpyDefault, stream),
          "cudaMemcpyAsync", from.device);
    check(
        cudaMemcpyPeerAsync(target, gpu_of(to.device), source, gpu_of(from.device), kBytes, stream),
        "cudaMemcpyPeerAsync", to.device);
    Staging::Block result(to.staging, kBytes, to.bridge);
    check(cudaMemcpyAsync(result.data(), target, kBytes, cudaMemcpyDefault, stream),
          "cudaMemcpyAsync", to.device);
    from.memory.deallocate(source, kBytes, stream);
    to.memory.deallocate(target, kBytes, stream);
    to.bridge.synchronize();
    return std::equal(block.data(), block.data() + kBytes, result.data());
  }

  std::mutex mutex_;
  std::array<std::array<Answer, LogicalDevices::kMost>, LogicalDevices::kMost> answers_{};
};

}  // namespace lockstep::cuda
