// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/threads/park.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace lockstep::detail {
namespace park_test {

TEST(Park, ReturnsAtOnceWhereTheWordHasChanged) {
  const std::atomic<std::uint32_t> word{1};
  park(word, 0);
  park_counted(word, 0);
  EXPECT_EQ(parked_at(&word).load(), 0u);
}

TEST(Park, WhoIsParkedIsWoken) {
  for (std::uint32_t round = 0; round < 200; ++round) {
    std::atomic<std::uint32_t> word{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        while (word.load() == 0) park_counted(word, 0);
      });
    }
    // In every other round they have come at least as far as the list.
    while (round % 2 == 1 && parked_at(&word).load() < 3) std::this_thread::yield();
    word.exchange(1);
    unpark_counted(word);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(parked_at(&word).load(), 0u);
  }
}

TEST(Park, OneAtATime) {
  std::atomic<std::uint32_t> word{0};  // how many may go on
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (std::uint32_t value = word.load();;) {
        if (value == 0) {
          park_counted(word, 0);
          value = word.load();
        } else if (word.compare_exchange_weak(value, value - 1)) {
          return;
        }
      }
    });
  }
  for (int i = 0; i < 3; ++i) {
    word.fetch_add(1);
    unpark_counted(word, 1);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(word.load(), 0u);
}

}  // namespace park_test
}  // namespace lockstep::detail
