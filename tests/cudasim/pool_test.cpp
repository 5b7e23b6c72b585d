// SPDX-License-Identifier: Apache-2.0
#include "cudasim/cudasim.hpp"
#include "cudasim/program.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace cudasim::test {
namespace pool_test {

constexpr std::size_t kMegabyte = std::size_t{1} << 20;

Config small(Policy policy = Policy::eager) {
  Config config;
  config.policy = policy;
  config.memory_bytes = 10 * kMegabyte;
  return config;
}

class Pool {
 public:
  explicit Pool(int device) {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = device;
    ok(cudaMemPoolCreate(&handle_, &properties));
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() { ok(cudaMemPoolDestroy(handle_)); }

  cudaMemPool_t get() const { return handle_; }
  void* allocate(std::size_t bytes, const Stream& stream) const {
    void* data = nullptr;
    ok(cudaMallocFromPoolAsync(&data, bytes, handle_, stream.get()));
    return data;
  }
  std::uint64_t reserved() const {
    std::uint64_t value = 0;
    ok(cudaMemPoolGetAttribute(handle_, cudaMemPoolAttrReservedMemCurrent, &value));
    return value;
  }

 private:
  cudaMemPool_t handle_ = nullptr;
};

std::size_t free_bytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  ok(cudaMemGetInfo(&free, &total));
  EXPECT_EQ(total, 10 * kMegabyte);
  return free;
}

TEST(CudasimPool, KeepsWhatIsFreedUpToItsThreshold) {
  reset(small());
  const Stream stream;
  const Pool pool(0);
  std::uint64_t threshold = 3 * kMegabyte;
  ok(cudaMemPoolSetAttribute(pool.get(), cudaMemPoolAttrReleaseThreshold, &threshold));
  void* one = pool.allocate(4 * kMegabyte, stream);
  void* two = pool.allocate(2 * kMegabyte, stream);
  EXPECT_EQ(free_bytes(), 4 * kMegabyte);
  ok(cudaFreeAsync(one, stream.get()));
  ok(cudaFreeAsync(two, stream.get()));
  EXPECT_EQ(pool.reserved(), 6 * kMegabyte);
  stream.synchronize();
  EXPECT_EQ(pool.reserved(), 3 * kMegabyte);
  ok(cudaMemPoolTrimTo(pool.get(), kMegabyte));
  EXPECT_EQ(pool.reserved(), kMegabyte);
  EXPECT_EQ(free_bytes(), 9 * kMegabyte);
}

TEST(CudasimPool, OutOfMemory) {
  reset(small());
  const Stream stream;
  void* data = nullptr;
  EXPECT_EQ(cudaMallocAsync(&data, 11 * kMegabyte, stream.get()), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&data, 11 * kMegabyte), cudaErrorMemoryAllocation);
  const auto most = std::make_unique<Floats>(9 * kMegabyte / sizeof(float), stream);
  EXPECT_EQ(cudaMallocAsync(&data, 2 * kMegabyte, stream.get()), cudaErrorMemoryAllocation);
  const Floats last(kMegabyte / sizeof(float), stream);
  EXPECT_EQ(free_bytes(), 0U);
}

TEST(CudasimPool, AFreeCountsWhenItHasRun) {
  reset(small(Policy::lazy));
  const Stream stream;
  void* data = nullptr;
  ok(cudaMallocAsync(&data, 8 * kMegabyte, stream.get()));
  ok(cudaFreeAsync(data, stream.get()));
  EXPECT_EQ(cudaMallocAsync(&data, 8 * kMegabyte, stream.get()), cudaErrorMemoryAllocation);
  stream.synchronize();
  ok(cudaMallocAsync(&data, 8 * kMegabyte, stream.get()));
  ok(cudaFreeAsync(data, stream.get()));
}

TEST(CudasimPool, WhatOnePoolKeepsNoOtherGets) {
  reset(small());
  const Stream stream;
  const Pool pool(0);
  std::uint64_t threshold = ~std::uint64_t{0};
  ok(cudaMemPoolSetAttribute(pool.get(), cudaMemPoolAttrReleaseThreshold, &threshold));
  ok(cudaFreeAsync(pool.allocate(8 * kMegabyte, stream), stream.get()));
  stream.synchronize();
  void* data = nullptr;
  EXPECT_EQ(cudaMallocAsync(&data, 8 * kMegabyte, stream.get()), cudaErrorMemoryAllocation);
  ok(cudaMemPoolTrimTo(pool.get(), 0));
  ok(cudaMallocAsync(&data, 8 * kMegabyte, stream.get()));
  ok(cudaFreeAsync(data, stream.get()));
}

TEST(CudasimPool, BelongsToADevice) {
  reset(small());
  const Stream stream(1);
  const Pool pool(1);
  void* data = pool.allocate(kMegabyte, stream);
  cudaPointerAttributes attributes{};
  ok(cudaPointerGetAttributes(&attributes, data));
  EXPECT_EQ(attributes.device, 1);
  EXPECT_EQ(free_bytes(), 10 * kMegabyte);  // of device 0
  ok(cudaFreeAsync(data, stream.get()));
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = 7;
  cudaMemPool_t none = nullptr;
  EXPECT_EQ(cudaMemPoolCreate(&none, &properties), cudaErrorInvalidValue);
}

TEST(CudasimPool, Destroyed) {
  expect_error(
      [] {
        const Stream stream;
        cudaMemPool_t handle = nullptr;
        {
          const Pool pool(0);
          handle = pool.get();
        }
        void* data = nullptr;
        EXPECT_EQ(cudaMallocFromPoolAsync(&data, 100, handle, stream.get()), cudaErrorInvalidValue);
      },
      {"DEAD POOL", "cudaMallocFromPoolAsync"});
}

TEST(CudasimPool, CannotBeSharedWithoutPeerAccess) {
  Config config = small();
  config.peer_access = false;
  reset(config);
  const Pool pool(0);
  cudaMemAccessDesc access{};
  access.location.type = cudaMemLocationTypeDevice;
  access.location.id = 1;
  access.flags = cudaMemAccessFlagsProtReadWrite;
  EXPECT_EQ(cudaMemPoolSetAccess(pool.get(), &access, 1), cudaErrorInvalidDevice);
}

}  // namespace pool_test
}  // namespace cudasim::test
