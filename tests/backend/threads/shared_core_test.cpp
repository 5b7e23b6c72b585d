// SPDX-License-Identifier: Apache-2.0
//
// What yielding is for, that the scheduler moves one of two threads, is up to the scheduler.
#include <lockstep/backend/threads/shared_core.hpp>

#include <gtest/gtest.h>

#include <chrono>

namespace lockstep::detail {
namespace shared_core_test {

TEST(SharedCore, WhoWasWokenFromAnotherCoreDoesNotYield) {
  SharedCore shared;
  int looks = 0;
  const auto look = [&] { return ++looks > 0; };
  EXPECT_FALSE(shared.yield_until(look));  // never woken
  shared.woken_from(-1);
  EXPECT_FALSE(shared.yield_until(look));
  shared.woken_from(current_core() + 1024);
  EXPECT_FALSE(shared.yield_until(look));
  EXPECT_EQ(looks, 0);
}

TEST(SharedCore, WhoWasWokenFromItsOwnWaitsUntilItIsReady) {
  if (current_core() < 0) GTEST_SKIP() << "the system does not say where a thread runs";
  const CoreBinding binding(affinity(), 0, usable_cores(), "test");
  SharedCore shared;
  shared.woken_from(current_core());
  int looks = 0;
  EXPECT_TRUE(shared.yield_until([&] { return ++looks > 0; }));
  EXPECT_TRUE(shared.yield_until([&] { return ++looks > 0; }));
  EXPECT_EQ(looks, 2);
}

TEST(SharedCore, WhatIsReadyIsNotYieldedFor) {
  if (current_core() < 0) GTEST_SKIP() << "the system does not say where a thread runs";
  const CoreBinding binding(affinity(), 0, usable_cores(), "test");
  SharedCore shared;
  shared.woken_from(current_core());
  int yields = 0;
  EXPECT_TRUE(shared.yield_until([] { return true; }, [&] { ++yields; }));
  EXPECT_EQ(yields, 0);
  EXPECT_TRUE(shared.yield_until([&] { return yields == 1; }, [&] { ++yields; }));
  EXPECT_EQ(yields, 1);
}

TEST(SharedCore, AWaitHasAnEnd) {
  if (current_core() < 0) GTEST_SKIP() << "the system does not say where a thread runs";
  const CoreBinding binding(affinity(), 0, usable_cores(), "test");
  SharedCore shared;
  shared.woken_from(current_core());
  EXPECT_FALSE(shared.yield_until([] { return false; }));
}

TEST(SharedCore, AfterALongYieldThereIsNoOtherForAWhile) {
  if (current_core() < 0) GTEST_SKIP() << "the system does not say where a thread runs";
  const CoreBinding binding(affinity(), 0, usable_cores(), "test");
  SharedCore shared;
  shared.woken_from(current_core());
  using Clock = std::chrono::steady_clock;
  const auto lasts_a_slice = [] {
    for (const auto end = Clock::now() + std::chrono::milliseconds(1); Clock::now() < end;) {
    }
  };
  int looks = 0;
  EXPECT_TRUE(shared.yield_until([&] { return ++looks == 2; }, lasts_a_slice));
  EXPECT_FALSE(shared.yield_until([&] { return ++looks > 0; }));
  EXPECT_EQ(looks, 2);
}

}  // namespace shared_core_test
}  // namespace lockstep::detail
