// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine/lane_workers.hpp>
#include <lockstep/backend/threads/worker_team.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::detail {
namespace lane_workers_test {

// Items with what they do, and with those that become ready when they have run.
struct Job {
  struct Item {
    std::size_t lane = 0;
    std::function<void()> body = {};
    std::vector<Item*> next = {};
    int waiting = 0;
    Item* next_ready = nullptr;
  };
  struct Scope {
    explicit Scope(Job& job) : scopes(job.scopes) { ++scopes; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { --scopes; }
    void enter(std::size_t lane) { entered = lane; }
    std::size_t entered = 0;
    std::atomic<int>& scopes;
  };

  explicit Job(std::size_t lane_count) : running(lane_count) { workers.set_lanes(lane_count); }

  Item& add(std::size_t lane, std::function<void()> body = {}) {
    items.push_back({.lane = lane, .body = std::move(body)});
    return items.back();
  }
  static void before(Item& first, Item& second) {
    first.next.push_back(&second);
    ++second.waiting;
  }
  void run(Pace pace) {
    for (Item& item : items) {
      if (item.waiting == 0) workers.put(item.lane, item);
    }
    workers.run(items.size(), pace);
    EXPECT_EQ(scopes, 0);
  }

  void run(Item& item) {
    EXPECT_FALSE(running[item.lane].exchange(true)) << "two items of one lane at a time";
    struct Leave {
      std::atomic<bool>& running;
      ~Leave() { running = false; }
    } const leave{running[item.lane]};
    ++ran;
    if (item.body) item.body();
  }
  void finish(Item& item) {
    for (Item* next : item.next) {
      if (--next->waiting == 0) workers.put(next->lane, *next);
    }
  }

  std::deque<Item> items;
  std::deque<std::atomic<bool>> running;
  std::atomic<int> ran{0};
  std::atomic<int> scopes{0};
  LaneWorkers<Job, Item> workers{*this};
};

Pace short_pace() {
  Pace pace;
  pace.measured(Pace::Clock::duration::zero());
  return pace;
}

class LaneWorkers : public ::testing::TestWithParam<bool> {
 protected:
  static Pace pace() { return GetParam() ? short_pace() : Pace(); }
};
INSTANTIATE_TEST_SUITE_P(Pace, LaneWorkers, ::testing::Bool(),
                         [](const auto& kind) { return kind.param ? "short" : "long"; });

// A grid in which each item waits for the one before it in its lane and for that of the lane
// before: each reads what those have written.
TEST_P(LaneWorkers, RunEachItemOnceAfterThoseItWaitsFor) {
  for (const std::size_t lanes : {1U, 2U, 3U, 8U}) {
    for (int round = 0; round < 50; ++round) {
      constexpr std::size_t kLength = 12;
      Job job(lanes);
      std::vector<std::vector<Job::Item*>> grid(lanes);
      std::vector<std::vector<int>> paths(lanes, std::vector<int>(kLength));
      for (std::size_t i = 0; i < lanes; ++i) {
        for (std::size_t j = 0; j < kLength; ++j) {
          grid[i].push_back(&job.add(i, [&paths, i, j] {
            paths[i][j] = (i > 0 ? paths[i - 1][j] : 0) + (j > 0 ? paths[i][j - 1] : 0);
            if (i + j == 0) paths[i][j] = 1;
          }));
          if (j > 0) Job::before(*grid[i][j - 1], *grid[i][j]);
          if (i > 0) Job::before(*grid[i - 1][j], *grid[i][j]);
        }
      }
      job.run(pace());
      ASSERT_EQ(job.ran, static_cast<int>(lanes * kLength));
      if (lanes == 1) {
        ASSERT_EQ(paths[0].back(), 1);
      } else if (lanes == 3) {
        ASSERT_EQ(paths[2].back(), 78);  // 13 over 2
      }
    }
  }
}

TEST_P(LaneWorkers, ItemsOfAllLanesMayWaitForEachOther) {
  for (const std::size_t lanes : {2U, 3U, 8U}) {
    for (int round = 0; round < 10; ++round) {
      Job job(lanes);
      std::barrier meeting(static_cast<std::ptrdiff_t>(lanes));
      Job::Item& first = job.add(0);
      for (std::size_t i = 0; i < lanes; ++i) {
        Job::Item& one = job.add(i, [&] { meeting.arrive_and_wait(); });
        Job::before(first, one);
        Job::before(one, job.add(i, [&] { meeting.arrive_and_wait(); }));
      }
      job.run(pace());
      ASSERT_EQ(job.ran, static_cast<int>(2 * lanes + 1));
    }
  }
}

// The lanes are left by their threads in between, which mostly park, and have to be taken up again.
TEST_P(LaneWorkers, MeetAgainAfterTheyHaveWaited) {
  constexpr std::size_t kLanes = 4;
  Job job(kLanes);
  std::barrier meeting(static_cast<std::ptrdiff_t>(kLanes));
  Job::Item* joint = &job.add(0);
  for (int phase = 0; phase < 20; ++phase) {
    Job::Item& next = job.add(static_cast<std::size_t>(phase) % kLanes, [] {
      const auto end = Pace::Clock::now() + 100 * kSpinTime;
      while (Pace::Clock::now() < end) cpu_relax();
    });
    for (std::size_t i = 0; i < kLanes; ++i) {
      Job::Item& item = job.add(i, [&] { meeting.arrive_and_wait(); });
      Job::before(*joint, item);
      Job::before(item, next);
    }
    joint = &next;
  }
  job.run(pace());
  EXPECT_EQ(job.ran, 20 * (static_cast<int>(kLanes) + 1) + 1);
}

TEST_P(LaneWorkers, TheErrorOfTheFirstLaneComesOutAndNothingIsBegunAfterIt) {
  for (int round = 0; round < 50; ++round) {
    Job job(3);
    std::barrier both_run(2);
    for (const std::size_t lane : {2U, 1U}) {
      Job::Item& item = job.add(lane, [&both_run, lane] {
        both_run.arrive_and_wait();
        throw std::runtime_error(std::to_string(lane));
      });
      Job::before(item, job.add(0));
    }
    job.run(pace());
    EXPECT_EQ(job.ran, 2);
    try {
      job.workers.rethrow_error();
      FAIL();
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "1");
    }
  }
}

TEST_P(LaneWorkers, OneLaneNeedsNobody) {
  const TeamStats before = team_stats();
  std::thread::id thread;
  Job job(1);
  Job::before(job.add(0), job.add(0, [&] { thread = std::this_thread::get_id(); }));
  job.run(pace());
  EXPECT_EQ(thread, std::this_thread::get_id());
  EXPECT_EQ(team_stats().shares_posted, before.shares_posted);
  Job failing(1);
  failing.add(0, [] { throw 1; });
  failing.run(pace());
  EXPECT_THROW(failing.workers.rethrow_error(), int);
}

TEST(LaneWorkersWakeUps, ShortWorkWakesAWorkerOnceInManyNaps) {
  const auto begin = Pace::Clock::now();
  const TeamStats before = team_stats();
  std::uint64_t over_the_limit = 0;  // passes that another program has made long
  for (int round = 0; round < 2000; ++round) {
    const auto pass = Pace::Clock::now();
    Job job(2);
    Job::Item& last = job.add(0);
    for (const std::size_t lane : {0U, 1U, 0U, 1U}) Job::before(job.add(lane), last);
    job.run(short_pace());
    if (!Pace::is_short(Pace::Clock::now() - pass)) ++over_the_limit;
  }
  const auto naps = (Pace::Clock::now() - begin) / kNap;
  EXPECT_LE(team_stats().wake_ups - before.wake_ups,
            over_the_limit + static_cast<std::uint64_t>(1 + naps / kNaps));
}

}  // namespace lane_workers_test
}  // namespace lockstep::detail
