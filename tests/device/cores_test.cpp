// SPDX-License-Identifier: Apache-2.0
#include <lockstep/device/cores.hpp>
#include <lockstep/device/devices.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

namespace lockstep {
namespace cores_test {

TEST(Cores, ThereIsAtLeastOneAndNoneThatTheMachineDoesNotHave) {
  EXPECT_GE(detail::usable_cores(), 1U);
  const unsigned cores = std::thread::hardware_concurrency();
  if (cores > 0) {
    EXPECT_LE(detail::usable_cores(), cores);
  }
}

#if defined(__linux__)
// taskset leaves a process with the affinity that it sets.
TEST(Cores, ThereAreAsManyHostDevicesAsCoresThatTasksetLeaves) {
  if (std::getenv("LOCKSTEP_HOST_DEVICES")) GTEST_SKIP() << "the environment decides";
  std::thread([] {
    cpu_set_t allowed;
    ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
    EXPECT_EQ(detail::DeviceCounts::default_host_count(), CPU_COUNT(&allowed));
    int last = CPU_SETSIZE - 1;
    while (!CPU_ISSET(last, &allowed)) --last;
    for (int count = CPU_COUNT(&allowed) - 1; count >= 1; --count) {
      CPU_CLR(last, &allowed);
      while (!CPU_ISSET(last, &allowed)) --last;
      ASSERT_EQ(::sched_setaffinity(0, sizeof allowed, &allowed), 0);
      EXPECT_EQ(detail::DeviceCounts::default_host_count(), count);
    }
  }).join();
}
#endif

}  // namespace cores_test
}  // namespace lockstep
