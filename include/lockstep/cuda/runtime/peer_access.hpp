// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/gpu_scratch.hpp>
#include <lockstep/cuda/runtime/cuda_device.hpp>
#include <lockstep/cuda/runtime/device_guard.hpp>
#include <lockstep/cuda/runtime/error.hpp>
#include <lockstep/cuda/runtime/logical_devices.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/never_destroyed.hpp>
#include <lockstep/warning.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>

namespace lockstep::cuda {

// Which GPUs can read each other's memory where it is: found out once for each pair of devices,
// with real data, since some machines say that they can and then deliver something else.
//
// Threads: any; `mutex_` is held while a pair is tried, and its answer written.
class PeerAccess {
 public:
  static PeerAccess& instance() { return detail::never_destroyed<PeerAccess>(); }

  // True if kernels and copies of `reader` can use the memory of `owner`.
  bool can_access(Device reader, Device owner) {
    if (gpu_of(reader) == gpu_of(owner)) return true;
    std::atomic<Answer>& answer =
        answers_[static_cast<std::size_t>(reader.index)][static_cast<std::size_t>(owner.index)];
    Answer found = answer.load(std::memory_order_acquire);
    if (found != Answer::unknown) return found == Answer::yes;
    {
      const std::lock_guard lock(mutex_);
      found = answer.load(std::memory_order_relaxed);
      if (found != Answer::unknown) return found == Answer::yes;
      found = try_out(reader, owner);
      answer.store(found, std::memory_order_release);
    }
    if (found == Answer::broken) {
      warn(detail::str("copies between ", owner, " and ", reader,
                       " do not arrive as they were sent, although the driver offers them; "
                       "they go through host memory instead"));
    }
    return found == Answer::yes;
  }

  // True once some pair has not delivered what the driver said that it can.
  bool found_broken() const { return broken_.load(std::memory_order_relaxed); }

 private:
  enum class Answer : unsigned char { unknown, yes, no, broken };

  Answer try_out(Device reader, Device owner) {
    int can = 0;
    check(cudaDeviceCanAccessPeer(&can, gpu_of(reader), gpu_of(owner)), "cudaDeviceCanAccessPeer",
          reader);
    if (can == 0) return Answer::no;
    CudaDevice& from = CudaDevice::at(owner);
    from.memory.set_access(gpu_of(reader), true);
    if (arrives(CudaDevice::at(reader), from)) return Answer::yes;
    from.memory.set_access(gpu_of(reader), false);
    broken_.store(true, std::memory_order_relaxed);
    return Answer::broken;
  }

  // Has `to` fetch a pattern from `from` and bring another one there, as copies between the two and
  // kernels will, and looks at both.
  static bool arrives(CudaDevice& to, CudaDevice& from) {
    constexpr std::size_t kBytes = Staging::kSmall;
    CudaStream& fill = from.bridge;
    CudaStream& send = to.bridge;
    const Staging::Block block(to.staging, kBytes, send);
    const auto draw = [&](std::size_t factor) {
      for (std::size_t i = 0; i < kBytes; ++i) {
        block.data()[i] = static_cast<std::byte>(i * factor + i / 251);
      }
    };
    const detail::GpuScratch source(fill, kBytes);
    const detail::GpuScratch target(send, kBytes);
    const Staging::Block result(to.staging, kBytes, send);
    const auto has_arrived = [&] {
      return std::equal(block.data(), block.data() + kBytes, result.data());
    };
    draw(167);
    copy(source.data(), block.data(), kBytes, fill);
    fill.synchronize();
    copy(target.data(), source.data(), kBytes, send);
    copy(result.data(), target.data(), kBytes, send);
    send.synchronize();
    if (!has_arrived()) return false;
    draw(59);
    copy(target.data(), block.data(), kBytes, send);
    copy(source.data(), target.data(), kBytes, send);
    send.synchronize();
    copy(result.data(), source.data(), kBytes, fill);
    fill.synchronize();
    return has_arrived();
  }

  static void copy(void* dst, const void* src, std::size_t bytes, const CudaStream& stream) {
    const DeviceGuard guard(stream.device());
    check(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream.handle()), "cudaMemcpyAsync",
          stream.device());
  }

  std::atomic<bool> broken_{false};
  std::mutex mutex_;
  std::array<std::array<std::atomic<Answer>, detail::kMaxCudaDevices>, detail::kMaxCudaDevices>
      answers_{};
};

}  // namespace lockstep::cuda
