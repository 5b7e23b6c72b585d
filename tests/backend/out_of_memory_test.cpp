// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/host/background_threads.hpp>
#include <lockstep/backend/host/host_allocator.hpp>
#include <lockstep/backend/host/host_memory.hpp>
#include <lockstep/backend/host/host_stream.hpp>
#include <lockstep/backend/memory_stats.hpp>
#include <lockstep/backend/threads/pace.hpp>
#include <lockstep/backend/threads/shared_shares.hpp>
#include <lockstep/device/cores.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>

#include "support/count_operator_new.hpp"
#include "support/gate.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <utility>
#include <vector>

// Errors on their way to the caller, and threads that help, need no memory.
namespace lockstep::detail {
namespace out_of_memory_test {

using testing::OutOfMemory;

constexpr std::size_t kShares = 5;
using Thrown = std::array<int, kShares>;

// What run_shared hands over while there is no memory: what each share threw, by its index.
Thrown errors_without_memory(Pace pace) {
  const auto share = [](std::size_t i) {
    if (i != 2) throw static_cast<int>(10 + i);
  };
  Thrown thrown{};
  const auto keep = [&](std::size_t index, const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (int number) {
      thrown[index] = number;
    }
  };
  run_shared(kShares, pace, share, [](std::size_t, const std::exception_ptr&) {});  // the threads
  const OutOfMemory scarce(1, true);
  run_shared(kShares, pace, share, keep);
  return thrown;
}

TEST(SharedSharesOutOfMemory, EachErrorReachesTheCaller) {
  Pace short_pace;
  short_pace.measured(Pace::Clock::duration::zero());
  constexpr Thrown kExpected{10, 11, 0, 13, 14};
  for (int round = 0; round < 20; ++round) {
    ASSERT_EQ(errors_without_memory(short_pace), kExpected);
    ASSERT_EQ(errors_without_memory(Pace()), kExpected);
  }
}

// A queued stream, for ever: a thread that has served it may still be about to leave it.
HostStream& new_stream() {
  static auto& streams = *new std::deque<HostStream>;
  return streams.emplace_back(Device(), HostStream::Mode::queued);
}

// Keeps every background thread in an operation that waits, so that whatever comes next asks for a
// thread more.
class AllHeld {
 public:
  AllHeld() {
    BackgroundThreads::instance().require();
    while (anybody_free()) {
      const std::size_t before = streams_.size();
      streams_.push_back(&new_stream());
      streams_.back()->submit([this] {
        ++begun_;
        begun_.notify_one();
        open_.wait(false);
      });
      begun_.wait(before);
    }
  }
  AllHeld(const AllHeld&) = delete;
  AllHeld& operator=(const AllHeld&) = delete;
  ~AllHeld() {
    open_ = true;
    open_.notify_all();
    for (HostStream* stream : streams_) stream->synchronize();
  }

 private:
  static bool anybody_free() {
    const BackgroundStats stats = BackgroundThreads::instance().stats();
    return stats.asleep + stats.awake > 0;
  }

  std::atomic<std::size_t> begun_{0};
  std::atomic<bool> open_{false};
  std::vector<HostStream*> streams_;
};

TEST(BackgroundThreadsOutOfMemory, AStreamIsServedByThoseThatAreThere) {
  std::atomic<bool> served{false};
  HostStream& stream = new_stream();
  stream.submit([] {});  // room in its queue
  stream.synchronize();
  {
    const AllHeld held;
    {
      const OutOfMemory scarce(1, true);
      stream.submit([&served] { served = true; });
    }
    EXPECT_TRUE(OutOfMemory::has_struck());
  }
  stream.synchronize();
  EXPECT_TRUE(served);
}

TEST(BackgroundThreadsOutOfMemory, SharedWorkIsDoneByItsOwnerAndLeavesNothingBehind) {
  if (usable_cores() == 1) GTEST_SKIP() << "nothing is shared on one core";
  std::array<std::atomic<int>, 64> done{};
  const auto run = [&done](std::size_t i) { done[i] += 1; };
  auto& threads = BackgroundThreads::instance();
  {
    const AllHeld held;
    {
      const OutOfMemory scarce(1, true);
      threads.share({run, 64});
    }
    EXPECT_TRUE(OutOfMemory::has_struck());
  }
  threads.share({run, 64});
  for (const auto& count : done) EXPECT_EQ(count, 2);
}

// More works than have ever been open at once need room of their own.
TEST(BackgroundThreadsOutOfMemory, WorkThatNobodyCanHelpWithIsDoneByItsOwner) {
  if (usable_cores() == 1) GTEST_SKIP() << "nothing is shared on one core";
  constexpr int kDepth = 40;
  std::atomic<int> pieces = 0;
  auto& threads = BackgroundThreads::instance();
  const std::function<void(int)> nest = [&](int depth) {
    threads.share({[&, depth](std::size_t i) {
                     ++pieces;
                     if (i == 0 && depth > 1) nest(depth - 1);
                   },
                   2});
  };
  {
    const OutOfMemory scarce(1, true);
    nest(kDepth);
  }
  EXPECT_TRUE(OutOfMemory::has_struck());
  EXPECT_EQ(pieces, 2 * kDepth);
}

// What has been taken from the system and not come back.
int blocks_taken = 0;

const HostMemorySource counting{[](std::size_t bytes) {
                                  ++blocks_taken;
                                  return OrdinaryMemory::take(bytes);
                                },
                                [](void* data) {
                                  --blocks_taken;
                                  OrdinaryMemory::give_back(data);
                                }};

TEST(HostAllocatorOutOfMemory, GivingABlockBackNeedsNoMemory) {
  HostAllocator allocator(Device(), counting);
  HostStream stream(Device(), HostStream::Mode::immediate);
  void* const data = allocator.allocate(1000, stream);
  {
    const OutOfMemory scarce(1, true);
    allocator.deallocate(data, 1000);
  }
  EXPECT_FALSE(OutOfMemory::has_struck());
  EXPECT_EQ(allocator.memory_stats({}).allocated_bytes, 0U);
  EXPECT_EQ(blocks_taken, 1);
  allocator.empty_cache({});
  EXPECT_EQ(blocks_taken, 0);
  EXPECT_EQ(allocator.memory_stats({}).reserved_bytes, 0U);
}

TEST(HostAllocatorOutOfMemory, ABlockInUseIsLeftUntilItsStreamsHaveNoWork) {
  HostAllocator allocator(Device(), counting);
  HostStream stream(Device(), HostStream::Mode::immediate);
  HostStream& reader = new_stream();
  HostStream& writer = new_stream();
  const std::size_t bytes[] = {1000, 70'000};
  std::vector<void*> blocks;
  UsedOn used_on[] = {{.first = &reader}, {.first = &reader, .all = {&reader, &writer}}};
  testing::Gate reads;
  testing::Gate writes;
  reads.hold(Stream(reader));
  writes.hold(Stream(writer));
  for (const std::size_t i : {0U, 1U}) {
    blocks.push_back(allocator.allocate(bytes[i], stream));
    {
      const OutOfMemory scarce(1, true);
      allocator.deallocate(blocks[i], bytes[i], stream, std::move(used_on[i]));
    }
    EXPECT_TRUE(OutOfMemory::has_struck());
  }
  std::vector<void*> others;
  for (const std::size_t size : bytes) others.push_back(allocator.allocate(size, stream));
  EXPECT_NE(others, blocks);
  reads.open();
  reader.synchronize();
  EXPECT_EQ(allocator.allocate(bytes[0], stream), blocks[0]);
  others.push_back(allocator.allocate(bytes[1], stream));
  EXPECT_NE(others.back(), blocks[1]);
  writes.open();
  writer.synchronize();
  EXPECT_EQ(allocator.allocate(bytes[1], stream), blocks[1]);
  for (const std::size_t i : {0U, 1U}) {
    allocator.deallocate(blocks[i], bytes[i]);
    allocator.deallocate(others[i], bytes[i]);
  }
  testing::Gate last;
  last.hold(Stream(writer));
  {
    const OutOfMemory scarce(1, true);
    allocator.deallocate(others[2], bytes[1], stream, {.first = &writer});
  }
  last.open();
  writer.synchronize();
  allocator.empty_cache({});
  EXPECT_EQ(allocator.memory_stats({}).allocated_bytes, 0U);
  EXPECT_EQ(blocks_taken, 0);
}

}  // namespace out_of_memory_test
}  // namespace lockstep::detail
