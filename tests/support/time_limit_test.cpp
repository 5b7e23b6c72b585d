// SPDX-License-Identifier: Apache-2.0
#include "support/time_limit.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <latch>
#include <mutex>
#include <string>
#include <thread>

#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::testing::time_limit_test {

std::atomic<int> waiting{0};  // threads that the limit may find where they are to be found

[[gnu::noinline]] void waits_for_a_latch() {
  std::latch never{1};
  ++waiting;
  never.wait();
}

[[gnu::noinline]] void waits_for_a_condition() {
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  ++waiting;
  while (true) never.wait(lock);
}

[[gnu::noinline]] void waits_for_a_thread(std::thread& thread) {
  while (waiting < 2) std::this_thread::yield();
  const itimerval soon{{}, {0, 50'000}};
  ::setitimer(ITIMER_REAL, &soon, nullptr);
  thread.join();
}

// Ends by the limit.
void hang() {
  const std::string operation = "an operation";
  TimeLimit::at(operation.c_str(), 29, true);
  std::thread one(&waits_for_a_latch);
  std::thread other(&waits_for_a_condition);
  waits_for_a_thread(other);
  one.join();
}

TEST(TimeLimitDeathTest, SaysWhichTestItIsAndShowsTheStackOfEachThread) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(hang(), ::testing::KilledBySignal(SIGABRT),
              "TimeLimitDeathTest.SaysWhichTestItIsAndShowsTheStackOfEachThread: takes too long, "
              "at an operation 29 and all later ones.*waits_for_a_thread.*"
              "waits_for_a_latch.*waits_for_a_condition");
}

TEST(TimeLimitDeathTest, ChildrenHaveOneTooHoweverTheyBegin) {
  if (std::getenv("LOCKSTEP_TEST_LIMIT")) GTEST_SKIP() << "another limit is asked for, or none";
  for (const char* const style : {"fast", "threadsafe"}) {
    GTEST_FLAG_SET(death_test_style, style);
    EXPECT_EXIT(::_exit(::alarm(0) > 0 ? 0 : 1), ::testing::ExitedWithCode(0), "") << style;
  }
}

}  // namespace lockstep::testing::time_limit_test
