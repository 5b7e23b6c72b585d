// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/leave_core.hpp>

#include <lockstep/device/cores.hpp>

#include <gtest/gtest.h>

#include <thread>

namespace lockstep::detail {
namespace leave_core_test {

// Whether another core is idle is up to the machine.
TEST(LeaveCore, TheThreadGoesOnElsewhereAndMayRunWhereverItMight) {
  std::thread([] {
    const unsigned cores = usable_cores();
    for (int i = 0; i < 100; ++i) {
      const int core = current_core();
      const bool left = leave_core(core);
      EXPECT_FALSE(left && cores == 1);
      EXPECT_EQ(usable_cores(), cores);
    }
  }).join();
}

TEST(LeaveCore, ACoreThatThereIsNotIsNotLeft) {
  const unsigned cores = usable_cores();
  EXPECT_FALSE(leave_core(-1));
  EXPECT_FALSE(leave_core(1 << 20));
  EXPECT_EQ(usable_cores(), cores);
}

TEST(LeaveCore, AThreadThatRunsIsCounted) {
#if defined(__linux__)
  EXPECT_GE(runnable_threads(), 1U);
#endif
}

}  // namespace leave_core_test
}  // namespace lockstep::detail
