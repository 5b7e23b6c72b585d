// SPDX-License-Identifier: Apache-2.0
#include <lockstep/device/stream.hpp>

#include "support/ordered_stream.hpp"
#include "support/sanitizers.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <thread>
#include <vector>

namespace lockstep::testing {
namespace ordered_stream_test {

// One of these is never destroyed.
OrderedStream& make() { return *new OrderedStream(Device("cpu:0")); }

TEST(OrderedStream, RunsInOrderAndTellsLateThatItHasEnded) {
  const MayLeak never_destroyed;
  OrderedStream& stream = make();
  std::vector<int> seen;
  std::atomic<bool> ended{false};
  for (int i = 0; i < 100; ++i) stream.submit([&seen, i] { seen.push_back(i); });
  stream.submit([&] { ended = true; });
  const lockstep::detail::EventPtr event = stream.record();
  stream.submit([] {});
  while (!ended) std::this_thread::yield();
  EXPECT_FALSE(event->query());
  EXPECT_FALSE(stream.idle());
  event->synchronize();
  EXPECT_TRUE(event->query());
  EXPECT_FALSE(stream.idle());
  stream.synchronize();
  EXPECT_TRUE(stream.idle());
  ASSERT_EQ(seen.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
}

TEST(OrderedStream, IsWaitedForUntilTheHostKnowsThatItHasEnded) {
  const MayLeak never_destroyed;
  OrderedStream& first = make();
  OrderedStream& second = make();
  std::atomic<bool> opened{false};
  bool ended = false;
  bool seen = false;
  first.submit([&] {
    opened.wait(false);
    ended = true;
  });
  Stream(second).wait_stream(Stream(first));
  second.submit([&] { seen = ended; });
  EXPECT_FALSE(Stream(first).record_event().query());
  opened = true;
  opened.notify_one();
  for (OrderedStream* const stream : {&first, &second}) stream->synchronize();
  EXPECT_TRUE(seen);
}

TEST(OrderedStream, MemoryIsKeptForAllThatShareIt) {
  const MayLeak never_destroyed;
  OrderedStream& first = make();
  OrderedStream& second = make();
  for (OrderedStream* const stream : {&first, &second}) stream->synchronize();
  EXPECT_TRUE(first.idle());
  first.share_memory_with({&first, &second});
  second.submit([] {});
  EXPECT_FALSE(first.idle());
  const lockstep::detail::EventPtr event = first.record();
  EXPECT_FALSE(event->precedes_new_work_of(first));
  EXPECT_TRUE(event->precedes_new_work_of(second));
  second.synchronize();
  EXPECT_TRUE(first.idle());
  EXPECT_TRUE(event->precedes_new_work_of(first));
}

// Writes by one stream what another has written, and ends.
[[noreturn]] void write_twice(bool waits) {
  static float shared[100];
  const auto write = [] {
    for (float& element : shared) element += 1;
  };
  OrderedStream& first = make();
  OrderedStream& second = make();
  std::atomic<bool> ended{false};
  first.submit(write);
  first.submit([&] { ended.store(true, std::memory_order_relaxed); });
  while (!ended.load(std::memory_order_relaxed)) std::this_thread::yield();
  if (waits) second.wait(first.record());
  second.submit(write);
  second.synchronize();
  first.synchronize();
  std::exit(0);
}

TEST(OrderedStreamDeathTest, AMissingWaitIsARaceToThreadSanitizer) {
  if (!kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer is not there";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(write_twice(true), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(write_twice(false), ::testing::ExitedWithCode(66), "data race");
}

}  // namespace ordered_stream_test
}  // namespace lockstep::testing
