// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/memory_stats.hpp>
#include <lockstep/cuda/memory/block_cache.hpp>
#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/cuda/runtime/device_guard.hpp>
#include <lockstep/cuda/runtime/error.hpp>
#include <lockstep/cuda/runtime/per_device.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace lockstep::cuda {

// The runtime's pool that all memory of one GPU comes from, shared by the devices that lie on it,
// and what was given back and has not gone to it yet. Made at its first use and never destroyed.
class GpuPool {
 public:
  static cudaMemPool_t of(Device device) { return per_gpu<GpuPool>(device).handle(device); }

  // After `of` this device.
  static BlockCache& cache_of(Device device) { return *per_gpu<GpuPool>(device).cache_; }

 private:
  cudaMemPool_t handle(Device device) {
    if (const cudaMemPool_t made = pool_.load(std::memory_order_acquire)) return made;
    const std::lock_guard lock(mutex_);
    cudaMemPool_t pool = pool_.load(std::memory_order_relaxed);
    if (pool) return pool;
    if (!cache_) cache_ = std::make_unique<BlockCache>(cache_limit(device));
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = gpu_of(device);
    check(cudaMemPoolCreate(&pool, &properties), "cudaMemPoolCreate", device);
    std::uint64_t keep = UINT64_MAX;
    const cudaError_t kept = cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep);
    if (kept != cudaSuccess) (void)cudaMemPoolDestroy(pool);
    check(kept, "cudaMemPoolSetAttribute", device);
    pool_.store(pool, std::memory_order_release);
    return pool;
  }

  // An eighth of the memory where the environment says nothing.
  static std::size_t cache_limit(Device device) {
    if (const auto limit = BlockCache::limit_of_environment()) return *limit;
    const DeviceGuard guard(device);
    std::size_t free = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo", device);
    return total / 8;
  }

  std::mutex mutex_;
  std::atomic<cudaMemPool_t> pool_{nullptr};
  std::unique_ptr<BlockCache> cache_;  // there is one once `pool_` is
};

// The memory of one CUDA device, taken from its GPU's pool and given back in stream order. What is
// given back stays with the GPU's BlockCache or in the pool until `trim`.
//
// Threads: any. The counters order nothing.
class MemoryPool {
 public:
  explicit MemoryPool(Device device) : device_(device) {}

  // Usable by work issued to `stream` from now on.
  void* allocate(std::size_t bytes, cudaStream_t stream) {
    if (bytes == 0) return nullptr;
    const std::size_t in_use = allocated_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    void* data = nullptr;
    try {
      data = take(bytes, stream, in_use);
    } catch (...) {
      allocated_.fetch_sub(bytes, std::memory_order_relaxed);
      throw;
    }
    allocations_.fetch_add(1, std::memory_order_relaxed);
    std::size_t peak = peak_.load(std::memory_order_relaxed);
    while (peak < in_use && !peak_.compare_exchange_weak(peak, in_use, std::memory_order_relaxed)) {
    }
    return data;
  }

  // Frees a block after all work issued to `stream` so far. If the runtime does not take it, it is
  // left; errors of earlier work are told to whoever waits for the stream.
  void deallocate(void* data, std::size_t bytes, cudaStream_t stream) noexcept {
    if (!data) return;
    BlockCache& cache = GpuPool::cache_of(device_);
    if (!cache.keep(data, cache.rounded(bytes), stream)) {
      if (!BlockCache::give_back(data, stream)) return leave(data, bytes, stream, {});
      cache.forget();
    }
    allocated_.fetch_sub(bytes, std::memory_order_relaxed);
  }

  // The same where a call or an allocation has failed, so that nobody knows when `used_on` have
  // ended what they do with the block. It counts as allocated until they are known to have: when
  // memory runs out, or at the next `trim`. Where the GPU of one of them has failed that is never.
  void leave(void* data, std::size_t bytes, cudaStream_t stream,
             detail::UsedOn&& used_on) noexcept {
    if (!data) return;
    GpuPool::cache_of(device_).leave({data, stream, std::move(used_on), bytes, &allocated_});
  }

  // Limits what tensors take to so many bytes; what is in use already stays.
  void set_limit(std::size_t bytes) { limit_.store(bytes, std::memory_order_relaxed); }

  // Gives what no tensor uses back to the GPU.
  void trim() {
    enter_gpu(device_);
    const cudaMemPool_t pool = GpuPool::of(device_);
    GpuPool::cache_of(device_).release();
    (void)free_left();
    check(cudaMemPoolTrimTo(pool, 0), "cudaMemPoolTrimTo", device_);
  }

  // Sets whether the kernels and copies of another GPU may use this memory.
  void set_access(int gpu, bool allowed) {
    cudaMemAccessDesc access{};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = gpu;
    access.flags = allowed ? cudaMemAccessFlagsProtReadWrite : cudaMemAccessFlagsProtNone;
    check(cudaMemPoolSetAccess(GpuPool::of(device_), &access, 1), "cudaMemPoolSetAccess", device_);
  }

  MemoryStats stats() {
    std::uint64_t reserved = 0;
    check(
        cudaMemPoolGetAttribute(GpuPool::of(device_), cudaMemPoolAttrReservedMemCurrent, &reserved),
        "cudaMemPoolGetAttribute", device_);
    return {.allocations = allocations_.load(std::memory_order_relaxed),
            .allocated_bytes = allocated_.load(std::memory_order_relaxed),
            .peak_bytes = peak_.load(std::memory_order_relaxed),
            .reserved_bytes = reserved};
  }

 private:
  void* take(std::size_t bytes, cudaStream_t stream, std::size_t in_use) {
    void* data = nullptr;
    cudaError_t status = cudaErrorMemoryAllocation;
    const cudaMemPool_t pool = GpuPool::of(device_);
    if (in_use > limit_.load(std::memory_order_relaxed)) in_use = free_left();
    if (in_use <= limit_.load(std::memory_order_relaxed)) {
      BlockCache& cache = GpuPool::cache_of(device_);
      const std::size_t rounded = cache.rounded(bytes);
      if (void* const kept = cache.take(rounded, stream)) return kept;
      cache.make_room();
      try {
        status = cudaMallocFromPoolAsync(&data, rounded, pool, stream);
        if (status == cudaErrorMemoryAllocation) status = retry(&data, rounded, stream);
      } catch (...) {
        cache.forget();
        throw;
      }
      if (status != cudaSuccess) cache.forget();
    }
    if (status == cudaErrorMemoryAllocation) out_of_memory(bytes);
    check(status, "cudaMallocFromPoolAsync", device_);
    return data;
  }

  // Tries once more, after all frees that were issued have happened and with nothing kept.
  cudaError_t retry(void** data, std::size_t bytes, cudaStream_t stream) {
    (void)cudaGetLastError();
    const DeviceGuard guard(device_);
    GpuPool::cache_of(device_).release();
    (void)free_left();
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize", device_);
    trim();
    return cudaMallocFromPoolAsync(data, bytes, GpuPool::of(device_), stream);
  }

  // Gives back those of the blocks that are left whose streams end without a failure. Returns what
  // is in use then.
  std::size_t free_left() noexcept {
    const auto has_ended = [](const detail::StreamState* stream) {
      const auto* const gpus = dynamic_cast<const CudaStream*>(stream);
      if (!gpus) return stream->idle();
      const bool ended = cudaStreamSynchronize(gpus->bare_handle()) == cudaSuccess;
      if (!ended) (void)cudaGetLastError();
      return ended;
    };
    GpuPool::cache_of(device_).free_left([&](const detail::UsedOn& used_on) {
      return detail::is_known([&] { return detail::all_of(used_on.streams(), has_ended); });
    });
    return allocated_.load(std::memory_order_relaxed);
  }

  [[noreturn]] void out_of_memory(std::size_t bytes) {
    (void)cudaGetLastError();
    const DeviceGuard guard(device_);
    std::size_t free = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo", device_);
    const std::size_t limit = limit_.load(std::memory_order_relaxed);
    const std::size_t used = allocated_.load(std::memory_order_relaxed) - bytes;
    detail::fail<OutOfMemoryError>(
        device_, " is out of memory: ", bytes, " bytes were asked for, ", free, " of ", total,
        " are free, ", used, " are in use by tensors",
        limit == SIZE_MAX ? std::string() : detail::str(" (at most ", limit, ")"));
  }

  const Device device_;
  std::atomic<std::size_t> limit_{SIZE_MAX};
  std::atomic<std::size_t> allocated_{0};
  std::atomic<std::size_t> peak_{0};
  std::atomic<std::uint64_t> allocations_{0};
};

}  // namespace lockstep::cuda
