// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/threads/spin_wait.hpp>

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

namespace lockstep::detail {
namespace spin_wait_test {

TEST(SpinWait, ThereIsACoreToRunOn) { EXPECT_GE(usable_cores(), 1U); }

TEST(SpinWait, CountsOnlyTheCoresThatTheThreadMayUse) {
  std::thread([] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(usable_cores(), 1U);
  }).join();
}

TEST(SpinWait, SpinsUntilReady) {
  int looks = 0;
  EXPECT_TRUE(spin_until([&] { return ++looks == 1; }));
  EXPECT_EQ(looks, 1);
  EXPECT_TRUE(spin_until([&] { return ++looks == 4; }));
  EXPECT_EQ(looks, 4);
}

TEST(SpinWait, GivesUpSpinning) {
  EXPECT_FALSE(spin_until([] { return false; }));
}

TEST(SpinWait, WaitsForAValueThroughOthersAndSeesWhatCameBefore) {
  constexpr std::uint32_t kLast = 2000;
  std::atomic<std::uint32_t> published{0};
  std::atomic<std::uint32_t> taken{0};
  std::uint32_t plain = 0;  // ordered by `published` and `taken`
  std::thread other([&] {
    for (std::uint32_t i = 1; i <= kLast; ++i) {
      plain = i;
      published.exchange(i, std::memory_order_acq_rel);
      unpark_counted(published);
      spin_then_park(taken, [i](std::uint32_t value) { return value >= i; });
    }
  });
  for (std::uint32_t i = 1; i <= kLast; ++i) {
    spin_then_park(published, [i](std::uint32_t value) { return value >= i; });
    EXPECT_EQ(plain, i);
    taken.exchange(i, std::memory_order_acq_rel);
    unpark_counted(taken);
  }
  other.join();
}

}  // namespace spin_wait_test
}  // namespace lockstep::detail
