// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/relayed_error.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/cuda/runtime/device_guard.hpp>
#include <lockstep/cuda/runtime/error.hpp>
#include <lockstep/device/stream.hpp>

#include <algorithm>
#include <cstddef>
#include <typeinfo>

namespace lockstep::cuda {

[[gnu::noinline]] LOCKSTEP_INLINE void launch_erased(detail::StreamState& stream, std::size_t count,
                                                     std::size_t a_block, const void* kernel,
                                                     void** arguments,
                                                     const std::type_info& functor) {
  constexpr std::size_t kMost = 65535;  // of blocks: each then takes several turns
  detail::check_not_forked();
  auto& on = static_cast<CudaStream&>(stream);
  const auto blocks = static_cast<unsigned>(std::min((count + a_block - 1) / a_block, kMost));
  const DeviceGuard guard(on.device());
  const cudaError_t status =
      cudaLaunchKernel(kernel, dim3(blocks), dim3(kThreads), arguments, 0, on.handle());
  if (status != cudaSuccess) [[unlikely]] {
    const detail::DescribedError launched{&functor, nullptr};
    fail(status, "launch of " + launched.type_name(), on.device());
  }
}

}  // namespace lockstep::cuda
