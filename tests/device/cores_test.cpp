// SPDX-License-Identifier: Apache-2.0
#include <lockstep/device/cores.hpp>
#include <lockstep/device/devices.hpp>

#include <gtest/gtest.h>
#include <sched.h>

#include <cstddef>
#include <cstdlib>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {
namespace cores_test {

TEST(Cores, ThereIsAtLeastOneAndNoneThatTheMachineDoesNotHave) {
  EXPECT_GE(detail::usable_cores(), 1U);
  const unsigned cores = std::thread::hardware_concurrency();
  if (cores > 0) {
    EXPECT_LE(detail::usable_cores(), cores);
  }
}

// taskset leaves a process with the affinity that it sets.
TEST(Cores, ThereAreAsManyHostDevicesAsCoresThatTasksetLeaves) {
  if (std::getenv("LOCKSTEP_HOST_DEVICES")) GTEST_SKIP() << "the environment decides";
  std::thread([] {
    cpu_set_t allowed;
    ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
    EXPECT_EQ(detail::default_host_count(), CPU_COUNT(&allowed));
    std::size_t last = CPU_SETSIZE - 1;
    while (!CPU_ISSET(last, &allowed)) --last;
    for (int count = CPU_COUNT(&allowed) - 1; count >= 1; --count) {
      CPU_CLR(last, &allowed);
      while (!CPU_ISSET(last, &allowed)) --last;
      ASSERT_EQ(::sched_setaffinity(0, sizeof allowed, &allowed), 0);
      EXPECT_EQ(detail::default_host_count(), count);
    }
  }).join();
}

bool equal(const detail::CoreSet& a, const detail::CoreSet& b) { return CPU_EQUAL(&a, &b) != 0; }

detail::CoreSet affinity_of_a_detached_thread() {
  std::promise<std::optional<detail::CoreSet>> started;
  detail::start_detached("none", [&] { started.set_value(detail::affinity()); });
  return *started.get_future().get();
}

TEST(Cores, PartsAreDisjointAndCoverAll) {
  const detail::CoreSet all = *detail::affinity();
  const unsigned count = detail::usable_cores();
  for (std::size_t parts = 1; parts <= count; ++parts) {
    detail::CoreSet seen;
    CPU_ZERO(&seen);
    for (std::size_t part = 0; part < parts; ++part) {
      const detail::CoreBinding binding(all, part, parts, "part");
      const detail::CoreSet mine = *detail::affinity();
      EXPECT_GE(CPU_COUNT(&mine), static_cast<int>(count / parts));
      detail::CoreSet both;
      CPU_AND(&both, &mine, &seen);
      EXPECT_EQ(CPU_COUNT(&both), 0);
      CPU_OR(&seen, &seen, &mine);
    }
    EXPECT_TRUE(equal(seen, all));
    EXPECT_TRUE(equal(*detail::affinity(), all));
  }
}

TEST(Cores, MorePartsThanCoresShareThem) {
  const detail::CoreSet all = *detail::affinity();
  const std::size_t count = detail::usable_cores();
  std::vector<detail::CoreSet> sets;
  for (std::size_t part = 0; part < 2 * count + 1; ++part) {
    const detail::CoreBinding binding(all, part, 2 * count + 1, "part");
    sets.push_back(*detail::affinity());
    EXPECT_EQ(CPU_COUNT(&sets.back()), 1);
    EXPECT_TRUE(equal(sets[part], sets[part % count]));
  }
}

TEST(Cores, WhatABoundThreadCountsAndStartsIsNotBound) {
  const detail::CoreSet all = *detail::affinity();
  const unsigned count = detail::usable_cores();
  const detail::CoreBinding binding(all, 0, count, "part");
  EXPECT_EQ(detail::usable_cores(), count);
  {
    const detail::CoreBinding inner(detail::affinity(), 0, 1, "part");
    EXPECT_EQ(detail::usable_cores(), count);
  }
  EXPECT_EQ(detail::usable_cores(), count);
  EXPECT_TRUE(equal(affinity_of_a_detached_thread(), all));
}

TEST(Cores, NorIsWhatItsThreadsCountAndStart) {
  const detail::CoreSet all = *detail::affinity();
  const unsigned count = detail::usable_cores();
  const auto see = [&](const detail::CoreSet& own) {
    EXPECT_TRUE(equal(*detail::affinity(), own));
    EXPECT_EQ(detail::usable_cores(), count);
    EXPECT_TRUE(equal(affinity_of_a_detached_thread(), all));
  };
  detail::start_thread("none", [&] { see(all); }).join();
  const detail::CoreBinding binding(all, 0, count, "part");
  const detail::CoreSet mine = *detail::affinity();
  detail::start_thread("none", [&] {
    see(mine);
    detail::start_thread("none", [&] { see(mine); }).join();
  }).join();
}

TEST(Cores, WhatCannotBeBoundIsNamed) {
  const detail::CoreSet all = *detail::affinity();
  detail::CoreSet none;
  CPU_ZERO(&none);
  for (const std::optional<detail::CoreSet>& cores :
       {std::optional<detail::CoreSet>(), std::optional(none)}) {
    try {
      const detail::CoreBinding binding(cores, 1, 2, "rank");
      FAIL() << "expected an Error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("rank 1 of 2 cannot be bound"), std::string::npos)
          << error.what();
    }
    EXPECT_TRUE(equal(*detail::affinity(), all));
  }
}

}  // namespace cores_test
}  // namespace lockstep
