// SPDX-License-Identifier: Apache-2.0
#include <lockstep/distributed/run.hpp>
#include <lockstep/distributed/thread/claimed_pieces.hpp>
#include <lockstep/distributed/thread/rendezvous.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include "support/devices.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <thread>
#include <vector>

namespace lockstep::distributed::detail {
namespace claimed_pieces_test {

// A rank that sleeps after the meeting keeps nobody waiting, and finds nothing left.
TEST(ClaimedPieces, TheRankThatRunsDoesAllThatOthersLeave) {
  ClaimedPieces pieces;
  std::vector<std::size_t> run;
  pieces.run(5, [&](std::size_t i) { run.push_back(i); });
  EXPECT_EQ(run, (std::vector<std::size_t>{0, 1, 2, 3, 4}));
  pieces.run(5, [](std::size_t i) { FAIL() << "piece " << i << " is run again"; });
  pieces.reset();
  pieces.run(2, [&](std::size_t i) { run.push_back(i); });
  EXPECT_EQ(run.size(), 7U);
}

TEST(ClaimedPieces, RunUntilAllHaveEnded) {
  ClaimedPieces pieces;
  std::latch begun(1);
  std::latch may_end(1);
  int slow = 0;  // plain: ordered by the pieces' end
  std::thread holder([&] {
    pieces.run(2, [&](std::size_t i) {
      if (i > 0) return;
      begun.count_down();
      may_end.wait();
      slow = 1;
    });
  });
  begun.wait();
  bool ran = false;
  pieces.run(2, [&](std::size_t i) {
    ran = i == 1;
    may_end.count_down();  // the other piece ends after this one
  });
  EXPECT_TRUE(ran);
  EXPECT_EQ(slow, 1);
  holder.join();
}

// As a world of threads uses a pair of them: who is late in one round is still on its way out of it
// while others are in the next.
TEST(ClaimedPieces, EachRunsOnceInEachOfManyRounds) {
  constexpr int kRanks = 3;
  constexpr std::uint32_t kRounds = 3000;
  constexpr std::uint32_t kMost = 5;
  Rendezvous meeting(kRanks);
  ClaimedPieces pieces[2];
  std::vector<std::uint32_t> runs(kMost);  // plain: a piece's is ordered by meetings and ends
  const auto rank = [&](int own) {
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      ClaimedPieces& these = pieces[round % 2];
      if (own == 0) these.reset();
      (void)meeting.meet();
      const std::uint32_t count = 1 + round % kMost;
      these.run(count, [&](std::size_t i) { ++runs[i]; });
    }
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) threads.emplace_back(rank, r);
  for (std::thread& thread : threads) thread.join();
  for (std::uint32_t i = 0; i < kMost; ++i) EXPECT_EQ(runs[i], kRounds - kRounds * i / kMost) << i;
}

// Sums of a size that is one piece, some, and as many as there may be; a rank's tensors are gone as
// soon as it has its result.
TEST(ClaimedPieces, MakeUpALargeSumOfAWorld) {
  constexpr int kRanks = 4;
  run(lockstep::testing::first_devices(kRanks), [&](const ProcessGroup& group) {
    for (int round = 0; round < 30; ++round) {
      for (const std::int64_t count : {1025, 4099, 40'000, 300'007}) {
        Tensor tensor = full({count}, group.rank() + round, {.device = group.device()});
        (void)group.blocking().all_reduce(tensor);
        ASSERT_EQ(tensor.to_vector<float>(),
                  std::vector<float>(static_cast<std::size_t>(count),
                                     static_cast<float>(6 + kRanks * round)));
      }
    }
  });
}

}  // namespace claimed_pieces_test
}  // namespace lockstep::distributed::detail
