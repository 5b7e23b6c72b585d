// SPDX-License-Identifier: Apache-2.0
#pragma once

// The CUDA side of lockstep. One file of a program, compiled by nvcc, includes this header; all
// others keep to lockstep/lockstep.hpp and any compiler. Where there is no driver or no GPU the
// program runs on host devices, and `no_cuda_reason` says why.

#include <lockstep/backend/backend.hpp>
#include <lockstep/cuda/cuda_backend.hpp>
#include <lockstep/cuda/index_fault.hpp>
#include <lockstep/cuda/kernel.hpp>
#include <lockstep/cuda/kernels.hpp>
#include <lockstep/cuda/logical_devices.hpp>
#include <lockstep/cuda/memory_limit.hpp>
#include <lockstep/cuda/nvtx.hpp>
#include <lockstep/cuda/stream_timer.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/profile/device_timer.hpp>

#include <atomic>
#include <string>

namespace lockstep::cuda {

// Puts the backend and the library's kernels into their places.
inline bool register_backend() {
  fill_slots(AllKernels{});
  fill_call_slots(AllCalls{});
  after_wait.store(
      [](const lockstep::detail::StreamState& stream) { IndexFaults::instance().raise(stream); });
  lockstep::detail::cuda_backend.store(&CudaBackend::instance(), std::memory_order_release);
  profile::detail::device_timer.store(&StreamTimer::instance(), std::memory_order_release);
  lockstep::detail::cuda_device_counter.store(
      [](std::string* reason) {
        start_nvtx();  // no earlier: a tool may not be ready before `main`
        return count_devices(reason);
      },
      std::memory_order_release);
  return true;
}

inline const bool registered = register_backend();

}  // namespace lockstep::cuda
