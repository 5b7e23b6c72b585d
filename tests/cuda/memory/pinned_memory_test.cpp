// SPDX-License-Identifier: Apache-2.0
#include <lockstep/tensor/pin_memory.hpp>

#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/runtime/cuda_device.hpp>
#include <lockstep/cuda/runtime/error.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include <cudasim/cudasim.hpp>

#include "cuda/schedules.hpp"
#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Page-locked memory: who may use a block again, and when.
namespace lockstep {
namespace pinned_memory_test {

using testing::throws;
using Values = std::vector<float>;

constexpr std::int64_t kCount = 5000;

const void* place_of(const Tensor& tensor) { return tensor.impl()->data(); }

Tensor pinned(double value) {
  const PinMemoryGuard guard;
  return full({kCount}, value);
}

int calls_of(const std::string& function, const void* source) {
  int count = 0;
  for (const cudasim::Call& call : cudasim::take_calls()) {
    if (call.function == function && (!source || call.source == source)) ++count;
  }
  return count;
}

TEST(PinnedMemory, IsCopiedFromWhereItIs) {
  const Tensor batch = pinned(3);
  EXPECT_TRUE(batch.is_pinned());
  cudasim::record_calls(true);
  const Tensor there = batch.to("cuda:1");
  EXPECT_EQ(calls_of("cudaMemcpyAsync", place_of(batch)), 1);
  EXPECT_EQ(there.to_vector<float>(), Values(kCount, 3));
}

// Whoever writes to it waits for the copies that read it.
TEST(PinnedMemory, IsNotOverwrittenWhileItIsCopied) {
  testing::under_each_policy([] {
    const Tensor batch = pinned(1);
    std::vector<Tensor> there;
    for (int i = 0; i < 4; ++i) {
      batch.fill_(i);
      there.push_back(batch.to("cuda:2"));
    }
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(there[i].to_vector<float>(), Values(kCount, static_cast<float>(i)));
    }
  });
}

TEST(PinnedMemory, ABlockIsUsedAgainOnlyOnceItsCopiesHaveEnded) {
  synchronize("cuda:1");
  empty_cache(Device());
  cudasim::set_policy(cudasim::Policy::lazy);
  Tensor batch = pinned(1);
  const void* const first = place_of(batch);
  const Tensor there = batch.to("cuda:1");
  batch = Tensor();
  Tensor next = pinned(2);
  EXPECT_NE(place_of(next), first);
  current_stream("cuda:1").synchronize();
  const Tensor last = pinned(3);
  EXPECT_EQ(place_of(last), first);
  EXPECT_EQ(there.to_vector<float>(), Values(kCount, 1));
}

TEST(PinnedMemory, BlocksAreRightUnderEachSchedule) {
  testing::under_each_policy(
      [] {
        std::vector<Tensor> there;
        for (int i = 0; i < 12; ++i)
          there.push_back(pinned(i).to(i % 2 == 0 ? "cuda:1" : "cuda:2"));
        for (std::size_t i = 0; i < there.size(); ++i) {
          EXPECT_EQ(there[i].to_vector<float>(), Values(kCount, static_cast<float>(i)));
        }
      },
      20);
}

TEST(PinnedMemory, IsTakenWithTheContextOfADeviceThatIsInUse) {
  (void)ones({2}, {.device = "cuda:3"});
  const int used = cuda::CudaDevice::first_used.load();
  ASSERT_GE(used, 0);
  empty_cache(Device());
  cudasim::record_calls(true);
  const PinMemoryGuard guard;
  (void)empty({std::int64_t{1} << 20});
  int taken = 0;
  for (const cudasim::Call& call : cudasim::take_calls()) {
    if (call.function != "cudaHostAlloc") continue;
    EXPECT_EQ(call.device, used);
    ++taken;
  }
  EXPECT_EQ(taken, 1);
}

TEST(PinnedMemory, WhatIsKeptIsGivenBackWhenAskedOrWhenThereIsNoMore) {
  for (const char* device : {"cuda:1", "cuda:2"}) synchronize(device);
  (void)pinned(1);
  cudasim::record_calls(true);
  empty_cache("cpu");
  EXPECT_GE(calls_of("cudaFreeHost", nullptr), 1);
  EXPECT_EQ(pinned_memory_stats().reserved_bytes, pinned_memory_stats().allocated_bytes);

  (void)pinned(1);
  (void)cudasim::take_calls();
  cudasim::fail_next("cudaHostAlloc", cudaErrorMemoryAllocation);
  const PinMemoryGuard guard;
  EXPECT_NO_THROW((void)empty({std::int64_t{1} << 19}));
  EXPECT_GE(calls_of("cudaFreeHost", nullptr), 1);
}

TEST(PinnedMemory, SaysWhatFailed) {
  empty_cache("cpu");
  const PinMemoryGuard guard;
  cudasim::fail_next("cudaHostAlloc", cudaErrorMemoryAllocation, 2);
  EXPECT_TRUE(throws<Error>([] { (void)empty({std::int64_t{1} << 21}); },
                            "out of memory on cpu: asked for 8388608 bytes"));
  cudasim::fail_next("cudaHostAlloc", cudaErrorOperatingSystem);
  EXPECT_TRUE(throws<CudaError>([] { (void)empty({std::int64_t{1} << 21}); }, "cudaHostAlloc"));
  EXPECT_EQ(full({3}, 2).to_vector<float>(), (Values{2, 2, 2}));
}

}  // namespace pinned_memory_test
}  // namespace lockstep
