// SPDX-License-Identifier: Apache-2.0
#include <lockstep/distributed/thread/rendezvous.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace lockstep::distributed::detail {
namespace rendezvous_test {

void on_threads(int count, const auto& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

// Most often longer than ranks spin, so that the others park; whether they do changes nothing.
void be_late() {
  for (int i = 0; i < 200; ++i) std::this_thread::yield();
}

TEST(Rendezvous, EachRoundShowsWhatAllDidBefore) {
  for (const int ranks : {1, 2, 3, 7}) {
    constexpr int kRounds = 400;
    Rendezvous meeting(ranks);
    std::vector<int> done(static_cast<std::size_t>(ranks));  // ordered by the meetings alone
    std::atomic<int> wrong{0};
    on_threads(ranks, [&](int rank) {
      for (int round = 1; round <= kRounds; ++round) {
        if (round % 40 == 0 && round / 40 % ranks == rank) be_late();
        done[static_cast<std::size_t>(rank)] = round;
        if (!meeting.meet()) ++wrong;
        for (const int value : done) wrong += value != round;
        if (!meeting.meet()) ++wrong;
      }
    });
    EXPECT_EQ(wrong, 0) << ranks << " ranks";
  }
}

TEST(Rendezvous, NobodyGetsThroughOnceItIsBroken) {
  for (const bool parked : {false, true}) {
    Rendezvous meeting(3);
    std::atomic<int> through{0};
    on_threads(3, [&](int rank) {
      if (meeting.meet()) ++through;
      if (rank == 2) {
        if (parked) be_late();
        return meeting.break_off();
      }
      EXPECT_FALSE(meeting.meet());
      EXPECT_FALSE(meeting.meet());
    });
    EXPECT_EQ(through, 3);
  }
}

}  // namespace rendezvous_test
}  // namespace lockstep::distributed::detail
