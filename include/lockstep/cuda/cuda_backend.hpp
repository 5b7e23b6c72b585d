// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/host/host_stream.hpp>
#include <lockstep/cuda/kernels/copy_sixteens.hpp>
#include <lockstep/cuda/memory/pinned_memory.hpp>
#include <lockstep/cuda/memory/transfers.hpp>
#include <lockstep/cuda/runtime/cuda_device.hpp>
#include <lockstep/cuda/runtime/cuda_event.hpp>
#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/cuda/runtime/device_guard.hpp>
#include <lockstep/cuda/runtime/error.hpp>
#include <lockstep/cuda/runtime/logical_devices.hpp>
#include <lockstep/cuda/runtime/peer_access.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/never_destroyed.hpp>
#include <lockstep/profile/record_function.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::cuda {

// The CUDA devices as a Backend. Having it costs nothing before a device is used.
class CudaBackend final : public detail::Backend {
 public:
  using StreamState = detail::StreamState;

  static CudaBackend& instance() { return detail::never_destroyed<CudaBackend>(); }

  DeviceProperties properties(Device device) override {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, gpu_of(device)), "cudaGetDeviceProperties", device);
    return {.name = properties.name,
            .total_memory = properties.totalGlobalMem,
            .multi_processor_count = properties.multiProcessorCount};
  }

  CudaStream& default_stream(Device device) override { return CudaDevice::at(device).compute; }
  CudaStream& copy_stream(Device device) override { return CudaDevice::at(device).copy; }
  CudaStream& pool_stream(Device device) override {
    CudaDevice& mine = CudaDevice::at(device);
    const std::size_t turn = mine.next_pool.fetch_add(1, std::memory_order_relaxed);
    return *mine.pool[turn % CudaDevice::kPoolStreams];
  }

  void* allocate(std::size_t bytes, StreamState& owner) override {
    detail::check_not_forked();
    // Counted as a use of the stream, whether the driver is asked or not: see CudaStream.
    return CudaDevice::at(owner.device()).memory.allocate(bytes, stream_of(owner).handle());
  }

  // Frees in the order of the owner, which waits for the other streams that were recorded. If it
  // cannot wait for one of them, the block is left until they are known to have ended; that of a
  // GPU that has failed never has.
  void deallocate(void* data, std::size_t bytes, StreamState& owner,
                  detail::UsedOn&& used_on) noexcept override {
    if (detail::streams_are_gone()) return;
    MemoryPool& memory = CudaDevice::at(owner.device()).memory;
    try {
      for (StreamState* stream : used_on.streams()) {
        if (stream == &owner || stream->known_idle()) continue;
        const detail::EventPtr end = stream->record();
        // A GPU cannot wait for the host's work: this thread does.
        stream->device().is_cpu() ? end->wait_for_end() : owner.wait(end);
      }
    } catch (const CudaError& error) {
      if (is_sticky(static_cast<cudaError_t>(error.code()))) return;
      return memory.leave(data, bytes, stream_of(owner).bare_handle(), std::move(used_on));
    } catch (...) {
      return memory.leave(data, bytes, stream_of(owner).bare_handle(), std::move(used_on));
    }
    memory.deallocate(data, bytes, stream_of(owner).bare_handle());
  }

  MemoryStats memory_stats(Device device) override { return CudaDevice::at(device).memory.stats(); }

  void empty_cache(Device device) override { CudaDevice::at(device).memory.trim(); }

  bool can_access(Device reader, Device owner) override {
    return owner.is_cuda() && reader.is_cuda() && PeerAccess::instance().can_access(reader, owner);
  }

  void copy(const detail::CopyOrder& order) override {
    const std::size_t bytes = order.bytes();
    if (bytes == 0) return;
    StreamState& stream = *order.stream;
    if (stream.device().is_cuda()) {
      const profile::RecordFunction range("copy", row_of(stream),
                                          {.bytes = bytes, .stream = &stream});
      return cuda::copy(order, static_cast<CudaStream&>(stream));
    }
    // The stream is a host device's: when it comes to this copy it has waited for the GPU's work
    // already, and it goes on when the copy has ended.
    const Device gpu = order.dst_device.is_cuda() ? order.dst_device : order.src_device;
    CudaStream& bridge = CudaDevice::at(gpu).bridge;
    static_cast<detail::HostStream&>(stream).submit([order, bytes, &bridge] {
      const profile::RecordFunction range("copy", {bridge.device(), profile::Row::Kind::copy},
                                          {.bytes = bytes, .stream = &bridge});
      try {
        cuda::copy(order, bridge);
      } catch (...) {
        bridge.drain();  // a part may have been issued
        throw;
      }
      bridge.synchronize();
    });
  }

  void copy_all(std::span<const detail::CopyOrder> orders) override {
    if (orders.size() == 1) return copy(orders[0]);
    std::vector<detail::CopyOrder> by_kernel;
    for (const detail::CopyOrder& order : orders) {
      is_sixteens(order) ? by_kernel.push_back(order) : copy(order);
    }
    for (auto first = by_kernel.begin(); first != by_kernel.end();) {
      StreamState& stream = *first->stream;
      const auto last = std::stable_partition(
          first, by_kernel.end(),
          [&](const detail::CopyOrder& order) { return order.stream == &stream; });
      copy_together({first, last}, stream);
      first = last;
    }
  }

  // Managed memory is every device's. Host memory is asked about only where a GPU is in use, since
  // asking takes a context.
  std::string misplaced(const void* data, Device device) override {
    const int first = CudaDevice::first_used.load(std::memory_order_relaxed);
    if (device.is_cpu() && first < 0) return {};
    cudaPointerAttributes found{};
    const DeviceGuard guard(device.is_cpu() ? Device(DeviceType::cuda, first) : device);
    const cudaError_t status = cudaPointerGetAttributes(&found, data);
    if (status != cudaSuccess) {
      if (device.is_cuda()) fail(status, "cudaPointerGetAttributes", device);
      (void)cudaGetLastError();
      return {};
    }
    if (found.type == cudaMemoryTypeManaged) return {};
    const bool on_gpu = found.type == cudaMemoryTypeDevice;
    if (device.is_cpu() ? !on_gpu : on_gpu && found.device == gpu_of(device)) return {};
    if (on_gpu) return detail::str("memory of GPU ", found.device);
    return found.type == cudaMemoryTypeHost ? "page-locked host memory" : "ordinary host memory";
  }

  int native_index(Device device) override { return gpu_of(device); }

  std::intptr_t native_handle(StreamState& stream) override {
    return reinterpret_cast<std::intptr_t>(stream_of(stream).lend_handle());
  }

  void hand_over(StreamState& stream, std::intptr_t consumer) override {
    const auto event = std::static_pointer_cast<const CudaEvent>(stream.record());
    const DeviceGuard guard(stream.device());
    check(cudaStreamWaitEvent(reinterpret_cast<cudaStream_t>(consumer), event->handle(), 0),
          "cudaStreamWaitEvent", stream.device());
  }

 private:
  // Copies of one stream that are all sixteens.
  void copy_together(std::span<const detail::CopyOrder> orders, StreamState& stream) {
    if (orders.size() == 1) return copy(orders[0]);
    std::size_t bytes = 0;
    for (const detail::CopyOrder& order : orders) bytes += order.bytes();
    const profile::RecordFunction range("copy", row_of(stream),
                                        {.bytes = bytes, .stream = &stream});
    copy_sixteens(orders);
  }

  friend CudaBackend& detail::never_destroyed<CudaBackend>();

  CudaBackend() { detail::pinned_memory.store(&pinned_allocator(), std::memory_order_release); }

  // The row of a timeline that has the copies of a stream.
  static profile::Row row_of(const StreamState& stream) {
    const bool copies = &stream == &CudaDevice::at(stream.device()).copy;
    return {stream.device(), copies ? profile::Row::Kind::copy : profile::Row::Kind::compute};
  }

  static CudaStream& stream_of(StreamState& stream) { return static_cast<CudaStream&>(stream); }
};

}  // namespace lockstep::cuda
