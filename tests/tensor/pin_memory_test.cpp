// SPDX-License-Identifier: Apache-2.0
#include <lockstep/tensor/pin_memory.hpp>

#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/autograd/variable.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

// On host devices, which need no page-locked memory, and on GPUs, whose copies do (the suite on the
// simulated runtime compiles this file with cuda:0 in place of cpu:0).
namespace lockstep {
namespace pin_memory_test {

using testing::throws;

const Device kDevice("cpu:0");

bool there_is_a_gpu() { return device_count(DeviceType::cuda) > 0; }

TEST(PinMemory, IsOrdinaryMemoryWhereThereIsNoGpu) {
  const Tensor before = ones({3});
  EXPECT_FALSE(before.is_pinned());
  const PinMemoryGuard guard;
  const Tensor tensor = ones({3});
  EXPECT_EQ(tensor.device(), Device());
  EXPECT_EQ(tensor.is_pinned(), there_is_a_gpu());
  EXPECT_EQ(tensor.to_vector<float>(), (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(pinned_memory_stats().allocated_bytes > 0, there_is_a_gpu());
}

TEST(PinMemory, GuardsNestAndAreOfTheirThread) {
  const PinMemoryGuard outer;
  {
    const PinMemoryGuard inner(false);
    EXPECT_FALSE(detail::pin_memory_wanted());
    EXPECT_FALSE(ones({2}).is_pinned());
  }
  EXPECT_TRUE(detail::pin_memory_wanted());
  bool wanted_elsewhere = true;
  std::thread([&] { wanted_elsewhere = detail::pin_memory_wanted(); }).join();
  EXPECT_FALSE(wanted_elsewhere);
}

TEST(PinMemory, TheMemoryOfDevicesIsTheirs) {
  const PinMemoryGuard guard;
  const auto before = memory_stats(kDevice).allocations;
  const Tensor there = ones({5}, {.device = kDevice});
  EXPECT_FALSE(there.is_pinned());
  EXPECT_EQ(memory_stats(kDevice).allocations, before + 1);
}

TEST(PinMemory, OfATensorCopiesOnlyWhereThatIsOfUse) {
  const Tensor tensor = from_values<float>(std::vector<float>{1, 2, 3, 4}, {2, 2});
  const Tensor pinned = tensor.pin_memory();
  EXPECT_EQ(pinned.is_pinned(), there_is_a_gpu());
  EXPECT_EQ(pinned.is_same(tensor), !there_is_a_gpu());
  EXPECT_EQ(pinned.to_vector<float>(), tensor.to_vector<float>());
  EXPECT_TRUE(pin_memory(pinned).is_same(pinned));
}

TEST(PinMemory, ATensorOnADeviceCannotBePinned) {
  EXPECT_TRUE(throws<DeviceError>([] { (void)ones({2}, {.device = kDevice}).pin_memory(); },
                                  "expected a tensor on cpu"));
}

TEST(PinMemory, IsNotRecorded) {
  const Tensor tensor = ones({2});
  tensor.requires_grad_();
  EXPECT_TRUE(throws<AutogradError>([&] { (void)tensor.pin_memory(); }, "not recorded"));
  const NoGradGuard no_grad;
  EXPECT_NO_THROW((void)tensor.pin_memory());
}

TEST(PinMemory, IsKeptAndGivenBack) {
  const PinMemoryGuard guard;
  synchronize(kDevice);
  empty_cache(Device());
  const auto before = pinned_memory_stats();
  for (int i = 0; i < 5; ++i) (void)ones({1000});
  const auto after = pinned_memory_stats();
  EXPECT_EQ(after.fresh_allocations - before.fresh_allocations, there_is_a_gpu() ? 1U : 0U);
  empty_cache(Device());
  EXPECT_EQ(pinned_memory_stats().reserved_bytes, pinned_memory_stats().allocated_bytes);
}

}  // namespace pin_memory_test
}  // namespace lockstep
