// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/threads/crew.hpp>
#include <lockstep/backend/threads/worker_team.hpp>

#include "support/forked.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <latch>
#include <thread>

namespace lockstep::detail {
namespace crew_test {

// What the helpers of a crew do: each leaves its thread, and waits for `gate` if there is one. It
// yields `yields` times before it ends, so that a caller who does not wait for it is noticed.
struct Work {
  std::array<std::thread::id, 8> threads = {};
  std::atomic<int> came{0};
  std::latch* gate = nullptr;
  int yields = 0;

  void operator()(std::size_t helper) {
    came.fetch_add(1);
    if (gate) gate->wait();
    for (int i = 0; i < yields; ++i) std::this_thread::yield();
    threads[helper] = std::this_thread::get_id();
  }
};

TEST(Crew, HelpersThatAreNotCalledDoNothing) {
  Work work;
  for (int round = 0; round < 20; ++round) {
    Crew crew(3, work);
    EXPECT_EQ(crew.helpers(), 3U);
    crew.dismiss();
  }
  EXPECT_EQ(work.came, 0);
}

TEST(Crew, DismissWaitsForTheHelpersThatCame) {
  for (const Crew::Call how : {Crew::Call::urgent, Crew::Call::low_priority}) {
    Work work;
    work.yields = 1000;
    Crew crew(3, work);
    crew.call(1, how);
    crew.call(3, how);
    while (work.came < 2)
      std::this_thread::yield();  // a helper called with low priority comes by itself
    crew.dismiss();
    EXPECT_NE(work.threads[1], std::thread::id());
    EXPECT_NE(work.threads[1], std::this_thread::get_id());
    EXPECT_EQ(work.threads[2], std::thread::id());
    EXPECT_NE(work.threads[3], std::thread::id());
    EXPECT_NE(work.threads[3], work.threads[1]);
  }
}

TEST(Crew, WhoeverComesAfterDismissIsTurnedAway) {
  int turned_away = 0;
  for (int round = 0; round < 2000; ++round) {
    Work work;
    Crew crew(2, work);
    crew.call(1, round % 2 == 0 ? Crew::Call::low_priority : Crew::Call::urgent);
    if (round % 3 == 0) crew.make_urgent(1);
    crew.dismiss();
    const int came = work.came;
    ASSERT_EQ(came == 1, work.threads[1] != std::thread::id());
    turned_away += 1 - came;
  }
  EXPECT_GT(turned_away, 0);
}

TEST(Crew, HelpersMayCallHelpers) {
  struct Chain {
    Crew* crew = nullptr;
    std::latch last{1};
    void operator()(std::size_t helper) {
      if (helper == 4) return last.count_down();
      crew->call(helper + 1, Crew::Call::urgent);
      last.wait();
    }
  };
  Chain chain;
  Crew crew(4, chain);
  chain.crew = &crew;
  crew.call(1, Crew::Call::urgent);
  chain.last.wait();
  crew.dismiss();
}

TEST(Crew, ItsThreadsCountAsRunningUntilItIsDestroyed) {
  EXPECT_EQ(team_stats().running, 0U);
  {
    Work work;
    Crew crew(3, work);
    EXPECT_EQ(team_stats().running, 4U);
    run_team(2, [](std::size_t) { EXPECT_EQ(team_stats().running, 5U); });
    crew.dismiss();
    EXPECT_EQ(team_stats().running, 4U);
  }
  EXPECT_EQ(team_stats().running, 0U);
}

TEST(Crew, AnExceptionOfTheCallerWaitsForTheHelpers) {
  Work work;
  work.yields = 1000;
  try {
    Crew crew(1, work);
    crew.call(1, Crew::Call::urgent);
    while (work.came < 1) std::this_thread::yield();
    throw 1;
  } catch (int) {
    EXPECT_NE(work.threads[1], std::thread::id());
  }
}

TEST(Crew, AChildForkedMeanwhileDoesNotWait) {
  Work work;
  std::latch gate(1);
  work.gate = &gate;
  {
    Crew crew(1, work);
    crew.call(1, Crew::Call::urgent);
    while (work.came < 1) std::this_thread::yield();
    EXPECT_TRUE(testing::refused_when_forked([&] { crew.dismiss(); }));
    gate.count_down();
    crew.dismiss();
  }
}

}  // namespace crew_test
}  // namespace lockstep::detail
