// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/cuda.hpp>
#include <lockstep/cuda/cuda_backend.hpp>
#include <lockstep/cuda/kernels.hpp>
#include <lockstep/cuda/launch/index_fault.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/runtime/logical_devices.hpp>
#include <lockstep/cuda/runtime/nvtx.hpp>
#include <lockstep/cuda/runtime/stream_timer.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/profile/recording/recording.hpp>

#include <atomic>
#include <string>

namespace lockstep::cuda {

LOCKSTEP_INLINE bool register_backend() {
  fill_slots(AllKernels{});
  after_wait.store(
      [](const lockstep::detail::StreamState& stream) { IndexFaults::instance().raise(stream); });
  lockstep::detail::cuda_backend.store(&CudaBackend::instance(), std::memory_order_release);
  profile::detail::make_mark.store(&mark_stream, std::memory_order_release);
  lockstep::detail::cuda_device_counter.store(
      [](std::string* reason) {
        start_nvtx();  // not earlier: a tool may not be ready before `main`
        return count_devices(reason);
      },
      std::memory_order_release);
  return true;
}

}  // namespace lockstep::cuda
