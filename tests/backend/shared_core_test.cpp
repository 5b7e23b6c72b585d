// SPDX-License-Identifier: Apache-2.0
//
// What yielding is for, that the scheduler moves one of two threads, is up to the scheduler.
#include <lockstep/backend/shared_core.hpp>

#include <gtest/gtest.h>

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

TEST(SharedCore, AnAttemptHasAnEnd) {
  if (current_core() < 0) GTEST_SKIP() << "the system does not say where a thread runs";
  const CoreBinding binding(affinity(), 0, usable_cores(), "test");
  SharedCore shared;
  shared.woken_from(current_core());
  int waits = 0;
  for (bool looked = true; looked; ++waits) {
    looked = false;
    EXPECT_FALSE(shared.yield_until([&] {
      looked = true;
      return false;
    }));
  }
  EXPECT_GT(waits, 1);  // the last one did not look
}

}  // namespace shared_core_test
}  // namespace lockstep::detail
