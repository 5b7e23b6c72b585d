// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/host/host_allocator.hpp>
#include <lockstep/backend/host/host_stream.hpp>

#include "support/expect_error.hpp"
#include "support/sanitizers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

// Sizes beyond all reason are to be the allocator's error, not the sanitizer's; ThreadSanitizer is
// told so in cudasim/fiber.cpp.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

namespace lockstep::detail {
namespace host_allocator_test {

using testing::kAddressSanitizer;
using testing::kThreadSanitizer;
using testing::throws;

// An event that happens when the test says so, and comes before all work of one stream.
class ManualEvent final : public EventState {
 public:
  explicit ManualEvent(const StreamState* precedes = nullptr) : precedes_(precedes) {}
  bool query() const override {
    if (broken_) throw DeviceError("broken");
    return happened_;
  }
  void synchronize() const override {}
  void wait_for_end() const override {}
  bool precedes_new_work_of(const StreamState& stream) const override {
    return &stream == precedes_ || query();
  }
  void happen() { happened_ = true; }
  void set_broken(bool broken) { broken_ = broken; }

 private:
  bool broken_ = false;
  bool happened_ = false;
  const StreamState* precedes_;
};

class HostAllocatorTest : public ::testing::Test {
 protected:
  void* allocate(std::size_t bytes) { return allocator.allocate(bytes, stream); }

  HostAllocator allocator{Device("cpu:3")};
  HostStream stream{Device("cpu:3"), HostStream::Mode::immediate};
  HostStream other_stream{Device("cpu:3"), HostStream::Mode::immediate};

  ~HostAllocatorTest() override { allocator.empty_cache({}); }
};

// Each size at a boundary of the classes: whole multiples up to 256, then quarters of powers of
// two.
std::vector<std::size_t> boundary_sizes() {
  std::vector<std::size_t> sizes{0,  1,  2,  3,   4,   7,   8,   15,  31,
                                 63, 64, 65, 127, 128, 129, 191, 192, 193};
  for (std::size_t power = 256; power <= (std::size_t{2} << 30); power *= 2) {
    for (std::size_t quarter = 4; quarter < 8; ++quarter) {
      const std::size_t edge = power / 4 * quarter;
      for (const std::size_t size : {edge - 1, edge, edge + 1}) sizes.push_back(size);
    }
  }
  // The sanitizers note every byte of a block, which takes seconds for gigabytes.
  if (kAddressSanitizer || kThreadSanitizer) {
    std::erase_if(sizes, [](std::size_t size) { return size > 16 << 20; });
  }
  return sizes;
}

TEST_F(HostAllocatorTest, GivesAlignedMemoryOfAnySizeWithLittleWaste) {
  std::size_t last_class = 0;
  for (const std::size_t size : boundary_sizes()) {
    void* data = allocate(size);
    ASSERT_NE(data, nullptr) << size;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % HostAllocator::kAlignment, 0U) << size;
    if (size > 0) {
      static_cast<unsigned char*>(data)[0] = 1;
      static_cast<unsigned char*>(data)[size - 1] = 1;
    }
    const std::size_t block = allocator.memory_stats({}).allocated_bytes;
    EXPECT_GE(block, size);
    EXPECT_GE(block, last_class) << size;
    EXPECT_LE(block - size, block / 5 + 64) << size;
    last_class = block;
    allocator.deallocate(data, size, {});
    EXPECT_EQ(allocator.memory_stats({}).allocated_bytes, 0U) << size;
    // What a block takes is what it gives back, whichever list it was in.
    EXPECT_GE(allocator.memory_stats({}).reserved_bytes, block) << size;
    allocator.empty_cache({});
    EXPECT_EQ(allocator.memory_stats({}).reserved_bytes, 0U) << size;
  }
}

TEST_F(HostAllocatorTest, ReusesTheLastFreedFirst) {
  void* a = allocate(1000);
  void* b = allocate(1000);
  EXPECT_NE(a, b);
  allocator.deallocate(a, 1000, {});
  allocator.deallocate(b, 1000, {});
  EXPECT_EQ(allocate(1000), b);
  EXPECT_EQ(allocate(1000), a);
  EXPECT_EQ(allocator.memory_stats({}).fresh_allocations, 2U);
  allocator.deallocate(a, 1000, {});
  allocator.deallocate(b, 1000, {});
}

TEST_F(HostAllocatorTest, ReusesABlockForAnySizeOfItsClassAndForNoOther) {
  void* a = allocate(64);
  allocator.deallocate(a, 64, {});
  void* larger = allocate(65);
  EXPECT_NE(larger, a);
  EXPECT_EQ(allocate(0), a);
  allocator.deallocate(a, 0, {});
  EXPECT_EQ(allocate(1), a);
  allocator.deallocate(a, 1, {});
  allocator.deallocate(larger, 65, {});
}

TEST_F(HostAllocatorTest, KeepsABusyBlockUntilAllItsEventsHaveHappened) {
  const auto first = std::make_shared<ManualEvent>();
  const auto second = std::make_shared<ManualEvent>();
  void* busy = allocate(256);
  allocator.deallocate(busy, 256, {first, second});
  void* fresh = allocate(256);
  EXPECT_NE(fresh, busy);
  first->happen();
  void* fresher = allocate(256);
  EXPECT_NE(fresher, busy);
  second->happen();
  EXPECT_EQ(allocate(256), busy);
  for (void* data : {busy, fresh, fresher}) allocator.deallocate(data, 256, {});
}

TEST_F(HostAllocatorTest, GivesABusyBlockToAStreamThatItsEventsPrecede) {
  const auto event = std::make_shared<ManualEvent>(&stream);
  void* busy = allocate(256);
  allocator.deallocate(busy, 256, {event});
  void* elsewhere = allocator.allocate(256, other_stream);
  EXPECT_NE(elsewhere, busy);
  EXPECT_EQ(allocator.allocate(256, stream), busy);
  for (void* data : {busy, elsewhere}) allocator.deallocate(data, 256, {});
}

TEST_F(HostAllocatorTest, LooksBehindABusyBlockForAFreeOne) {
  const auto event = std::make_shared<ManualEvent>();
  void* free = allocate(256);
  void* busy = allocate(256);
  allocator.deallocate(free, 256, {});
  allocator.deallocate(busy, 256, {event});
  EXPECT_EQ(allocate(256), free);
  event->happen();
  EXPECT_EQ(allocate(256), busy);
  for (void* data : {busy, free}) allocator.deallocate(data, 256, {});
}

TEST_F(HostAllocatorTest, LeavesABusyBlockReadableForTheWorkThatKeepsItBusy) {
  const auto event = std::make_shared<ManualEvent>();
  auto* data = static_cast<unsigned char*>(allocate(256));
  std::memset(data, 7, 256);
  allocator.deallocate(data, 256, {event});
  EXPECT_EQ(data[255], 7);
  event->happen();
}

TEST_F(HostAllocatorTest, CountsWhatItDoes) {
  void* a = allocate(100);  // a block of 128
  void* b = allocate(1024);
  MemoryStats stats = allocator.memory_stats({});
  EXPECT_EQ(stats.allocations, 2U);
  EXPECT_EQ(stats.fresh_allocations, 2U);
  EXPECT_EQ(stats.allocated_bytes, 1152U);
  EXPECT_EQ(stats.peak_bytes, 1152U);
  EXPECT_EQ(stats.reserved_bytes, 1152U);
  allocator.deallocate(b, 1024, {});
  EXPECT_EQ(allocate(1000), b);
  allocator.deallocate(b, 1000, {});
  allocator.deallocate(a, 100, {});
  stats = allocator.memory_stats({});
  EXPECT_EQ(stats.allocations, 3U);
  EXPECT_EQ(stats.fresh_allocations, 2U);
  EXPECT_EQ(stats.allocated_bytes, 0U);
  EXPECT_EQ(stats.peak_bytes, 1152U);
  EXPECT_EQ(stats.reserved_bytes, 1152U);
}

TEST_F(HostAllocatorTest, EmptyCacheReturnsWhatNobodyMayStillTouch) {
  const auto event = std::make_shared<ManualEvent>();
  void* used = allocate(64);
  void* busy = allocate(128);
  void* free = allocate(3 << 20);
  allocator.deallocate(busy, 128, {event});
  allocator.deallocate(free, 3 << 20, {});
  allocator.empty_cache({});
  EXPECT_EQ(allocator.memory_stats({}).reserved_bytes, 192U);
  event->happen();
  allocator.empty_cache({});
  EXPECT_EQ(allocator.memory_stats({}).reserved_bytes, 64U);
  allocator.deallocate(used, 64, {});
  allocator.empty_cache({});
  EXPECT_EQ(allocator.memory_stats({}).reserved_bytes, 0U);
}

TEST_F(HostAllocatorTest, BlocksFrom64KiBOnShareAHugePage) {
  std::vector<unsigned char*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(static_cast<unsigned char*>(allocate(400'000)));
  EXPECT_EQ(allocator.memory_stats({}).reserved_bytes, 2U << 20);
  EXPECT_EQ(allocator.memory_stats({}).fresh_allocations, 4U);
  for (const int i : {0, 1, 2, 3}) std::memset(blocks[static_cast<std::size_t>(i)], i, 400'000);
  for (const int i : {0, 1, 2, 3}) {
    EXPECT_EQ(blocks[static_cast<std::size_t>(i)][399'999], i);
    allocator.deallocate(blocks[static_cast<std::size_t>(i)], 400'000, {});
  }
  void* less = allocate(57344);
  EXPECT_EQ(allocator.memory_stats({}).reserved_bytes, (2U << 20) + 57344U);
  allocator.deallocate(less, 57344, {});
}

// Clearing a huge page would cost several times what the pages of one such block do.
TEST_F(HostAllocatorTest, TheFirstBlockOf64KiBTakesNoHugePage) {
  constexpr std::size_t kBytes = std::size_t{64} << 10;
  void* const first = allocate(kBytes);
  EXPECT_EQ(allocator.memory_stats({}).reserved_bytes, 4 * kBytes);
  std::vector<void*> others;
  for (int i = 0; i < 4; ++i) others.push_back(allocate(kBytes));
  EXPECT_EQ(allocator.memory_stats({}).reserved_bytes, 4 * kBytes + (2U << 20));
  for (void* block : others) allocator.deallocate(block, kBytes, {});
  allocator.deallocate(first, kBytes, {});
  allocator.empty_cache({});
  EXPECT_EQ(allocator.memory_stats({}).reserved_bytes, 0U);
}

TEST_F(HostAllocatorTest, LargeBlocksShareHugePagesUnlessTheyFillThem) {
  std::vector<void*> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(allocate(3 << 20));
  EXPECT_EQ(allocator.memory_stats({}).reserved_bytes, 16U << 20);
  void* whole = allocate(4 << 20);
  EXPECT_EQ(allocator.memory_stats({}).reserved_bytes, 20U << 20);
  for (void* block : blocks) allocator.deallocate(block, 3 << 20, {});
  allocator.empty_cache({});
  EXPECT_EQ(allocator.memory_stats({}).reserved_bytes, 4U << 20);
  allocator.deallocate(whole, 4 << 20, {});
}

TEST_F(HostAllocatorTest, LittleOfASegmentIsLost) {
  for (std::size_t bytes = std::size_t{64} << 10; bytes < std::size_t{8} << 20;
       bytes += bytes / 4) {
    std::vector<void*> blocks;
    while (allocator.memory_stats({}).allocated_bytes < std::size_t{64} << 20) {
      blocks.push_back(allocate(bytes));
    }
    const MemoryStats stats = allocator.memory_stats({});
    const std::size_t fifths = kPoisons ? 11 : 7;  // a red zone leaves one of 1 MiB alone
    EXPECT_LE(stats.reserved_bytes, stats.allocated_bytes / 5 * fifths) << bytes;
    for (void* block : blocks) allocator.deallocate(block, bytes, {});
    allocator.empty_cache({});
  }
}

TEST_F(HostAllocatorTest, EmptyCacheKeepsWhatSharesAHugePageWithABlockInUse) {
  constexpr std::size_t kBytes = std::size_t{1} << 19;
  const auto event = std::make_shared<ManualEvent>();
  auto* used = static_cast<unsigned char*>(allocate(kBytes));
  void* idle = allocate(kBytes);
  void* busy = allocate(kBytes);
  std::memset(used, 7, kBytes);
  allocator.deallocate(idle, kBytes, {});
  allocator.deallocate(busy, kBytes, {event});
  allocator.empty_cache({});
  EXPECT_EQ(allocator.memory_stats({}).reserved_bytes, 2U << 20);
  EXPECT_EQ(allocate(kBytes), idle);
  EXPECT_EQ(allocator.memory_stats({}).fresh_allocations, 3U);
  EXPECT_EQ(used[kBytes - 1], 7);
  allocator.deallocate(idle, kBytes, {});
  allocator.deallocate(used, kBytes, {});
  allocator.empty_cache({});
  EXPECT_EQ(allocator.memory_stats({}).reserved_bytes, 2U << 20) << "work may still touch a block";
  event->happen();
  allocator.empty_cache({});
  EXPECT_EQ(allocator.memory_stats({}).reserved_bytes, 0U);
}

TEST_F(HostAllocatorTest, ABlockWhoseEventCannotBeAskedStaysUnused) {
  for (const std::size_t bytes : {std::size_t{256}, std::size_t{1} << 19}) {
    const auto happened = std::make_shared<ManualEvent>();
    const auto pending = std::make_shared<ManualEvent>();
    const auto broken = std::make_shared<ManualEvent>();
    happened->happen();
    broken->set_broken(true);
    auto* used = static_cast<unsigned char*>(allocate(bytes));
    std::memset(used, 7, bytes);
    std::vector<void*> blocks{allocate(bytes), allocate(bytes), allocate(bytes)};
    allocator.deallocate(blocks[0], bytes, {happened});
    allocator.deallocate(blocks[1], bytes, {pending});
    allocator.deallocate(blocks[2], bytes, {broken});
    EXPECT_EQ(allocate(bytes), blocks[0]);
    allocator.deallocate(blocks[0], bytes, {happened});
    const std::size_t reserved = allocator.memory_stats({}).reserved_bytes;
    for (int i = 0; i < 4; ++i) EXPECT_NO_THROW(allocator.empty_cache({}));
    // What happened, if it is not cut from a segment with the others.
    EXPECT_EQ(allocator.memory_stats({}).reserved_bytes,
              bytes == 256 ? reserved - bytes : reserved);
    EXPECT_NE(blocks[0] = allocate(bytes), blocks[1]);
    EXPECT_NE(blocks[0], blocks[2]);
    allocator.deallocate(blocks[0], bytes, {happened});
    broken->set_broken(false);
    broken->happen();
    pending->happen();
    const std::uint64_t fresh = allocator.memory_stats({}).fresh_allocations;
    std::vector<void*> again{allocate(bytes), allocate(bytes), allocate(bytes)};
    EXPECT_EQ(allocator.memory_stats({}).fresh_allocations, fresh);
    std::sort(blocks.begin(), blocks.end());
    std::sort(again.begin(), again.end());
    EXPECT_EQ(again, blocks);
    for (void* block : again) allocator.deallocate(block, bytes, {});
    allocator.empty_cache({});
    EXPECT_EQ(used[bytes - 1], 7);
    allocator.deallocate(used, bytes, {});
    allocator.empty_cache({});
  }
}

TEST_F(HostAllocatorTest, NamesWhatWasAskedForWhenThereIsNotThatMuch) {
  for (const std::size_t size : {std::size_t{PTRDIFF_MAX}, std::size_t{PTRDIFF_MAX} / 2 + 2,
                                 std::size_t{PTRDIFF_MAX} + 1, SIZE_MAX - 1, SIZE_MAX}) {
    EXPECT_TRUE(throws<Error>([&] { (void)allocate(size); }, "out of memory on cpu:3",
                              "asked for " + std::to_string(size) + " bytes"));
  }
  const MemoryStats stats = allocator.memory_stats({});
  EXPECT_EQ(stats.allocations, 0U);
  EXPECT_EQ(stats.allocated_bytes, 0U);
  EXPECT_EQ(stats.reserved_bytes, 0U);
}

TEST_F(HostAllocatorTest, GivesUpItsCacheBeforeItGivesUp) {
  void* used = allocate(64);
  void* kept = allocate(1 << 20);
  allocator.deallocate(kept, 1 << 20, {});
  EXPECT_TRUE(throws<Error>([&] { (void)allocate(PTRDIFF_MAX); }, "with 64 bytes in use"));
  EXPECT_EQ(allocator.memory_stats({}).reserved_bytes, 64U);
  allocator.deallocate(used, 64, {});
}

TEST_F(HostAllocatorTest, ServesManyThreads) {
  std::vector<std::jthread> threads;
  std::atomic<int> overwritten{0};
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      struct Held {
        unsigned char* data;
        std::size_t bytes;
      };
      std::vector<Held> held;
      std::mt19937 random(t);
      const auto mark = static_cast<unsigned char>(t + 1);
      const auto give_back = [&] {
        const Held block = held.back();
        held.pop_back();
        for (std::size_t i = 0; i < block.bytes; ++i) overwritten += block.data[i] != mark;
        allocator.deallocate(block.data, block.bytes, {});
      };
      for (int i = 0; i < 500; ++i) {
        const std::size_t bytes = random() % 64 == 0 ? 65000 + random() % 2000 : random() % 500;
        held.push_back({static_cast<unsigned char*>(allocate(bytes)), bytes});
        std::memset(held.back().data, mark, bytes);
        while (held.size() > random() % 8) give_back();
      }
      while (!held.empty()) give_back();
    });
  }
  threads.clear();
  EXPECT_EQ(overwritten, 0);
  EXPECT_EQ(allocator.memory_stats({}).allocations, 2000U);
  EXPECT_EQ(allocator.memory_stats({}).allocated_bytes, 0U);
}

using HostAllocatorDeathTest = HostAllocatorTest;

TEST_F(HostAllocatorDeathTest, AddressSanitizerCatchesUseAfterTheFreeAndBeyondTheEnd) {
  if (!kAddressSanitizer) GTEST_SKIP() << "needs a build with AddressSanitizer";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto* data = static_cast<volatile unsigned char*>(allocate(40));
  void* block = const_cast<unsigned char*>(data);
  data[39] = 1;
  EXPECT_DEATH(data[40] = 1, "use-after-poison");
  allocator.deallocate(block, 40, {});
  EXPECT_DEATH(data[0] = 1, "use-after-poison");
  // Blocks of a segment lie one behind the other.
  constexpr std::size_t kBytes = std::size_t{1} << 19;
  auto* first = static_cast<volatile unsigned char*>(allocate(kBytes));
  void* const second = allocate(kBytes);
  first[kBytes - 1] = 1;
  EXPECT_DEATH(first[kBytes] = 1, "use-after-poison");
  allocator.deallocate(const_cast<unsigned char*>(first), kBytes, {});
  allocator.deallocate(second, kBytes, {});
}

}  // namespace host_allocator_test
}  // namespace lockstep::detail
