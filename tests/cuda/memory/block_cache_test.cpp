// SPDX-License-Identifier: Apache-2.0
#include <lockstep/cuda/memory/block_cache.hpp>

#include <cudasim/cudasim.hpp>

#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

namespace lockstep::cuda {
namespace block_cache_test {

constexpr std::size_t kMib = std::size_t{1} << 20U;

class BlockCacheTest : public ::testing::Test {
 protected:
  BlockCacheTest() {
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking);
  }
  ~BlockCacheTest() override {
    cudaStreamDestroy(other_);
    cudaStreamDestroy(stream_);
  }

  void* block(std::size_t bytes) const {
    void* data = nullptr;
    EXPECT_EQ(cudaMallocAsync(&data, bytes, stream_), cudaSuccess);
    return data;
  }

  // How many blocks have gone back to the runtime since the last time.
  static std::size_t given_back() {
    std::size_t count = 0;
    for (const cudasim::Call& call : cudasim::take_calls()) {
      if (call.function == "cudaFreeAsync") ++count;
    }
    return count;
  }

  static constexpr const char* kVariable = "LOCKSTEP_CUDA_MEMORY_CACHE";
  cudaStream_t stream_ = nullptr;
  cudaStream_t other_ = nullptr;
};

TEST_F(BlockCacheTest, ABlockComesBackToItsStreamAndSize) {
  BlockCache cache(8 * kMib);
  void* const data = block(1024);
  EXPECT_EQ(cache.take(1024, stream_), nullptr);
  ASSERT_TRUE(cache.keep(data, 1024, stream_));
  EXPECT_EQ(cache.take(512, stream_), nullptr);
  EXPECT_EQ(cache.take(1024, other_), nullptr);
  EXPECT_EQ(cache.take(1024, stream_), data);
  EXPECT_EQ(cache.take(1024, stream_), nullptr);
  EXPECT_EQ(cudaFreeAsync(data, stream_), cudaSuccess);
}

TEST_F(BlockCacheTest, SizesAreRoundedSoThatTheyServeEachOther) {
  const BlockCache cache(8 * kMib);
  EXPECT_EQ(cache.rounded(1), 512U);
  EXPECT_EQ(cache.rounded(512), 512U);
  EXPECT_EQ(cache.rounded(513), 1024U);
  EXPECT_EQ(cache.rounded(SIZE_MAX), SIZE_MAX);
}

TEST_F(BlockCacheTest, BeyondTheLimitTheOldestGoBackToTheRuntime) {
  BlockCache cache(8 * kMib);
  std::vector<void*> blocks;
  for (int i = 0; i < 9; ++i) blocks.push_back(block(kMib));
  cudasim::record_calls(true);
  for (int i = 0; i < 8; ++i)
    ASSERT_TRUE(cache.keep(blocks[static_cast<std::size_t>(i)], kMib, stream_));
  EXPECT_EQ(given_back(), 0U);
  ASSERT_TRUE(cache.keep(blocks[8], kMib, stream_));
  EXPECT_EQ(given_back(), 1U);
  // The newest first: what a step gave back last is the warmest. Of the oldest there is none.
  for (int i = 8; i > 0; --i)
    EXPECT_EQ(cache.take(kMib, stream_), blocks[static_cast<std::size_t>(i)]);
  EXPECT_EQ(cache.take(kMib, stream_), nullptr);
  for (int i = 1; i < 9; ++i)
    ASSERT_TRUE(cache.keep(blocks[static_cast<std::size_t>(i)], kMib, stream_));
  (void)given_back();
  cache.release();
  EXPECT_EQ(given_back(), 8U);
  EXPECT_EQ(cache.take(kMib, stream_), nullptr);
  cudasim::record_calls(false);
}

TEST_F(BlockCacheTest, NoMoreBlocksThanItHasRoomForAndNoneThatIsLarge) {
  BlockCache cache(16 * kMib);
  cudasim::record_calls(true);
  for (int i = 0; i < 5000; ++i) ASSERT_TRUE(cache.keep(block(512), 512, stream_));
  EXPECT_EQ(given_back(), 5000U - 4096U);
  void* const large = block(9 * kMib);
  EXPECT_FALSE(cache.keep(large, 9 * kMib, stream_));
  EXPECT_EQ(cudaFreeAsync(large, stream_), cudaSuccess);
  cache.release();
  cudasim::record_calls(false);
}

TEST_F(BlockCacheTest, WhatTheRuntimeDoesNotTakeStays) {
  BlockCache cache(2 * kMib);
  cache.make_room();
  void* const first = block(kMib);
  ASSERT_TRUE(cache.keep(first, kMib, stream_));
  cache.make_room();
  void* const second = block(kMib);
  ASSERT_TRUE(cache.keep(second, kMib, stream_));
  cudasim::fail_next("cudaFreeAsync", cudaErrorLaunchOutOfResources);
  void* const third = block(kMib);
  EXPECT_FALSE(cache.keep(third, kMib, stream_));  // there is no room without the first
  EXPECT_TRUE(BlockCache::give_back(third, stream_));
  cudasim::fail_next("cudaFreeAsync", cudaErrorLaunchOutOfResources);
  cache.release();
  EXPECT_EQ(cache.take(kMib, stream_), second);
  EXPECT_EQ(cache.take(kMib, stream_), first);
  EXPECT_TRUE(BlockCache::give_back(first, stream_));
  EXPECT_TRUE(BlockCache::give_back(second, stream_));
}

TEST_F(BlockCacheTest, WithALimitOfNothingItKeepsNothingAndRoundsNothing) {
  BlockCache cache(0 * kMib);
  EXPECT_EQ(cache.rounded(13), 13U);
  void* const data = block(13);
  EXPECT_FALSE(cache.keep(data, 13, stream_));
  EXPECT_EQ(cudaFreeAsync(data, stream_), cudaSuccess);
}

TEST_F(BlockCacheTest, TheEnvironmentGivesTheLimitInMib) {
  const char* const before = std::getenv(kVariable);
  const std::string text = before != nullptr ? before : "0";
  ::setenv(kVariable, "3", 1);
  EXPECT_EQ(BlockCache::limit_of_environment(), 3 * kMib);
  for (const char* const wrong : {"many", "-1", "3 GiB"}) {
    ::setenv(kVariable, wrong, 1);
    EXPECT_TRUE(lockstep::testing::throws<DeviceError>(
        [] { (void)BlockCache::limit_of_environment(); }, kVariable, std::string(wrong)));
  }
  ::setenv(kVariable, text.c_str(), 1);
}

}  // namespace block_cache_test
}  // namespace lockstep::cuda
