// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host/host_stream.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/backend/relayed_error.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>

#include <atomic>
#include <cstddef>
#include <typeinfo>

namespace lockstep::detail {

[[gnu::noinline]] LOCKSTEP_INLINE void launch_bytes(const Stream& stream, std::size_t count,
                                                    const void* functor, std::size_t size,
                                                    HostKernel on_host,
                                                    const std::atomic<Launcher>& on_gpu,
                                                    const std::type_info& type) {
  if (count == 0) return;
  if (stream.device().is_cpu()) {
    return static_cast<HostStream&>(stream.state()).submit(on_host, count, functor, size);
  }
  const Launcher launcher = on_gpu.load(std::memory_order_acquire);
  if (!launcher) [[unlikely]] {
    const DescribedError missing{&type, nullptr};
    fail<DeviceError>("no CUDA kernel for ", missing.type_name(), " on ", stream.device(),
                      ": include lockstep/cuda.hpp in one file that nvcc compiles");
  }
  launcher(stream.state(), count, functor);
}

}  // namespace lockstep::detail
