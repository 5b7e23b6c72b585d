// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/threads/shared_shares.hpp>
#include <lockstep/backend/threads/worker_team.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <exception>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::detail {
namespace shared_shares_test {

Pace short_pace() {
  Pace pace;
  pace.measured(Pace::Clock::duration::zero());
  return pace;
}

void no_error(std::size_t index, const std::exception_ptr&) { FAIL() << "share " << index; }

// Both guesses lead to the same results.
class SharedShares : public ::testing::TestWithParam<bool> {
 protected:
  static Pace pace() { return GetParam() ? short_pace() : Pace(); }
};
INSTANTIATE_TEST_SUITE_P(Pace, SharedShares, ::testing::Bool(),
                         [](const auto& kind) { return kind.param ? "short" : "long"; });

TEST_P(SharedShares, EachRunsOnceAndIsOrderedWithTheCaller) {
  for (const std::size_t n : {2U, 3U, 4U, 7U, 16U}) {
    std::vector<int> input(n);
    std::vector<int> calls(n);
    for (int round = 1; round <= 200; ++round) {
      Pace guess = pace();
      for (int& value : input) value = round;
      const auto share = [&](std::size_t i) { calls[i] += input[i]; };
      run_shared(n, guess, share, no_error);
      ASSERT_EQ(calls, std::vector<int>(n, round * (round + 1) / 2));
    }
  }
}

TEST_P(SharedShares, ThatWaitForEachOtherAllMakeProgress) {
  for (const std::ptrdiff_t n : {2, 3, 8, 16}) {
    for (int round = 0; round < 5; ++round) {
      Pace guess = pace();
      std::barrier meeting(n);
      std::atomic<int> meetings{0};
      const auto share = [&](std::size_t) {
        for (int i = 0; i < 3; ++i) {
          meeting.arrive_and_wait();
          ++meetings;
        }
      };
      run_shared(static_cast<std::size_t>(n), guess, share, no_error);
      ASSERT_EQ(meetings, 3 * n);
    }
  }
}

// The last two wait for each other, when the caller has long ended its own.
TEST_P(SharedShares, ThatTheCallerTakesMayWaitForOthersToo) {
  for (int round = 0; round < 50; ++round) {
    Pace guess = pace();
    std::barrier meeting(2);
    const auto share = [&](std::size_t i) {
      if (i >= 2) meeting.arrive_and_wait();
    };
    run_shared(4, guess, share, no_error);
  }
}

TEST_P(SharedShares, Nest) {
  std::atomic<int> leaves{0};
  const auto outer = [&](std::size_t) {
    Pace guess = pace();
    std::barrier meeting(3);
    const auto inner = [&](std::size_t) {
      meeting.arrive_and_wait();
      ++leaves;
    };
    run_shared(3, guess, inner, no_error);
  };
  Pace guess = pace();
  run_shared(4, guess, outer, no_error);
  EXPECT_EQ(leaves, 12);
}

TEST_P(SharedShares, ErrorsComeInTheOrderOfTheSharesWhenAllHaveEnded) {
  Pace guess = pace();
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<bool> helped{false};
  std::atomic<int> ended{0};
  const auto share = [&](std::size_t i) {
    if (std::this_thread::get_id() != caller) {
      helped = true;
      // A caller who does not wait for it is noticed.
      for (int k = 0; k < 1000; ++k) std::this_thread::yield();
    }
    while (!helped) std::this_thread::yield();
    ++ended;
    if (i % 3 != 1) throw std::out_of_range(std::to_string(i));
  };
  std::vector<std::size_t> thrown;
  run_shared(8, guess, share, [&](std::size_t index, const std::exception_ptr& error) {
    EXPECT_EQ(ended, 8);
    thrown.push_back(index);
    try {
      std::rethrow_exception(error);
    } catch (const std::out_of_range& caught) {
      EXPECT_EQ(caught.what(), std::to_string(index));
    }
  });
  EXPECT_EQ(thrown, (std::vector<std::size_t>{0, 2, 3, 5, 6}));
}

TEST_P(SharedShares, ErrorsThatNobodyTookAreNotThoseOfTheNext) {
  struct Refusal {};
  const auto failing = [](std::size_t index) { throw std::runtime_error(std::to_string(index)); };
  const auto refuse = [](std::size_t, const std::exception_ptr&) { throw Refusal(); };
  Pace guess = pace();
  EXPECT_THROW(run_shared(4, guess, failing, refuse), Refusal);
  const auto empty = [](std::size_t) {};
  for (const std::exception_ptr& error : try_run_team(4, empty)) EXPECT_FALSE(error);
  run_shared(4, guess, empty, no_error);
}

TEST_P(SharedShares, SeveralCallersAtOnce) {
  const auto work = [] {
    for (int round = 0; round < 500; ++round) {
      Pace guess = pace();
      std::vector<int> calls(3);
      const auto share = [&](std::size_t i) { ++calls[i]; };
      run_shared(3, guess, share, no_error);
      ASSERT_EQ(calls, std::vector<int>(3, 1));
    }
  };
  std::thread other(work);
  work();
  other.join();
}

TEST(SharedSharesPace, IsWhatTheWorkTook) {
  Pace pace;
  EXPECT_FALSE(pace.is_short());
  const auto empty = [](std::size_t) {};
  // One of many measurements is not disturbed by other programs.
  for (int round = 0; round < 100000 && !pace.is_short(); ++round) {
    run_shared(2, pace, empty, no_error);
  }
  EXPECT_TRUE(pace.is_short());
  const auto last_is_long = [](std::size_t i) {
    const auto begin = Pace::Clock::now();
    while (i == 1 && Pace::is_short(Pace::Clock::now() - begin)) {
    }
  };
  run_shared(2, pace, last_is_long, no_error);
  EXPECT_FALSE(pace.is_short());
  run_shared(2, pace, last_is_long, no_error);
  EXPECT_FALSE(pace.is_short());
}

// A worker is woken when it has parked, and it parks when it has found nothing for so many naps.
TEST(SharedSharesWakeUps, ShortWorkWakesAWorkerOnceInManyNaps) {
  const auto empty = [](std::size_t) {};
  const auto begin = Pace::Clock::now();
  const TeamStats before = team_stats();
  constexpr int kCalls = 3000;
  for (int call = 0; call < kCalls; ++call) {
    // In between the worker has time to park, if that were what it does.
    const auto end = Pace::Clock::now() + 5 * kSpinTime;
    while (Pace::Clock::now() < end) cpu_relax();
    Pace pace = short_pace();
    run_shared(2, pace, empty, no_error);
  }
  const TeamStats after = team_stats();
  EXPECT_EQ(after.shares_posted - before.shares_posted, std::uint64_t{kCalls});
  const auto naps = (Pace::Clock::now() - begin) / kNap;
  EXPECT_LE(after.wake_ups - before.wake_ups, static_cast<std::uint64_t>(1 + naps / kNaps));
}

}  // namespace shared_shares_test
}  // namespace lockstep::detail
