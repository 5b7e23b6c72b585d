// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/host/background_threads.hpp>
#include <lockstep/backend/host/shared_work.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace lockstep::detail {
namespace shared_work_test {

using End = SharedWork::End;

TEST(SharedWork, PiecesAreTakenFromOneEndToTheOther) {
  SharedWork work;
  std::vector<std::size_t> order;
  auto piece = [&](std::size_t i) { order.push_back(i); };
  work.open({piece, 5});
  work.run_from(End::front);
  work.close();
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3, 4}));
  order.clear();
  work.open({piece, 5});
  work.run_from(End::back);
  work.close();
  EXPECT_EQ(order, (std::vector<std::size_t>{4, 3, 2, 1, 0}));
}

TEST(SharedWork, NobodyJoinsWhatIsClosed) {
  SharedWork work;
  EXPECT_FALSE(work.join(1));
  auto piece = [](std::size_t) {};
  work.open({piece, 2});
  work.run_from(End::front);
  work.close();
  EXPECT_FALSE(work.join(1));
}

TEST(SharedWork, NoMoreJoinThanTheyAllow) {
  SharedWork work;
  auto piece = [](std::size_t) {};
  work.open({piece, 2});
  EXPECT_TRUE(work.join(2));
  EXPECT_TRUE(work.join(2));
  EXPECT_FALSE(work.join(2));
  EXPECT_EQ(work.helpers(), 2U);
  EXPECT_TRUE(work.join(3));
  for (int i = 0; i < 3; ++i) work.help(End::back, [] { return true; });
  EXPECT_FALSE(work.has_pieces());
  EXPECT_EQ(work.helpers(), 0U);
  work.close();
}

// Helpers come and go whenever they like, and the owners open their works again at once.
TEST(SharedWork, EachPieceIsDoneOnceWhoeverComesWhen) {
  constexpr std::size_t kWorks = 2;
  constexpr int kRounds = 2000;
  std::vector<std::unique_ptr<SharedWork>> works;
  for (std::size_t i = 0; i < kWorks; ++i) works.push_back(std::make_unique<SharedWork>());
  std::atomic<bool> stop{false};
  std::vector<std::jthread> helpers;
  for (std::size_t helper = 0; helper < 3; ++helper) {
    helpers.emplace_back([&, helper] {
      for (std::size_t turn = helper; !stop.load(); ++turn) {
        SharedWork& work = *works[turn % kWorks];
        std::size_t patience = turn % 4;
        if (work.join(2)) {
          work.help(turn % 3 == 0 ? End::front : End::back, [&] { return patience-- > 0; });
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  std::vector<std::jthread> owners;
  for (std::size_t owner = 0; owner < kWorks; ++owner) {
    owners.emplace_back([&, owner] {
      for (std::uint32_t round = 0; round < kRounds; ++round) {
        std::vector<int> done(1 + round % 9, 0);
        auto piece = [&](std::size_t i) { ++done[i]; };
        works[owner]->open({piece, static_cast<std::uint32_t>(done.size())});
        works[owner]->run_from(End::front);
        works[owner]->close();
        ASSERT_EQ(std::count(done.begin(), done.end(), 1), std::ssize(done)) << "round " << round;
      }
    });
  }
  owners.clear();
  stop.store(true);
}

// More owners at once than ever before, while somebody looks for work all the time: what is made
// for them is seen whole (by ThreadSanitizer).
TEST(SharedWork, MayBeHeardOfAsSoonAsItIsThere) {
  constexpr int kOwners = 24;
  BackgroundThreads& threads = BackgroundThreads::instance();
  std::atomic<bool> stop{false};
  std::jthread looker([&] {
    while (!stop.load()) {
      if (!threads.help_while([] { return false; })) std::this_thread::yield();
    }
  });
  std::atomic<int> begun{0};
  std::vector<std::jthread> owners;
  for (int i = 0; i < kOwners; ++i) {
    owners.emplace_back([&] {
      std::atomic<bool> first{true};
      auto piece = [&](std::size_t) {
        if (first.exchange(false)) begun.fetch_add(1);
        while (begun.load() < kOwners) std::this_thread::yield();
      };
      threads.share({piece, 2});
    });
  }
  owners.clear();
  stop.store(true);
}

}  // namespace shared_work_test
}  // namespace lockstep::detail
