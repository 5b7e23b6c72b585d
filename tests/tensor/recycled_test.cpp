// SPDX-License-Identifier: Apache-2.0
#include <lockstep/tensor/recycled.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::detail {
namespace recycled_test {

TEST(Recycled, HandsOutLastWhatCameLast) {
  void* const one = RecycledBlocks::take(100);
  void* const two = RecycledBlocks::take(100);
  RecycledBlocks::put(one, 100);
  RecycledBlocks::put(two, 100);
  EXPECT_EQ(RecycledBlocks::take(100), two);
  EXPECT_EQ(RecycledBlocks::take(100), one);
  RecycledBlocks::put(one, 100);
  RecycledBlocks::put(two, 100);
}

TEST(Recycled, ABlockIsAsLargeAsEverySizeThatItServes) {
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{32}, std::size_t{33}, std::size_t{511}, std::size_t{512}}) {
    // As many as one list keeps, so that none of these is a block of another list.
    std::vector<unsigned char*> blocks;
    for (int i = 0; i < 300; ++i) {
      blocks.push_back(static_cast<unsigned char*>(RecycledBlocks::take(bytes)));
      for (std::size_t b = 0; b < bytes; ++b) blocks.back()[b] = static_cast<unsigned char>(i);
    }
    EXPECT_EQ(std::set<unsigned char*>(blocks.begin(), blocks.end()).size(), blocks.size());
    for (int i = 0; i < 300; ++i) {
      const auto at = static_cast<std::size_t>(i);
      EXPECT_EQ(blocks[at][0], static_cast<unsigned char>(i));
      EXPECT_EQ(blocks[at][bytes - 1], static_cast<unsigned char>(i));
    }
    for (unsigned char* block : blocks) RecycledBlocks::put(block, bytes);
  }
}

// The thread that frees last keeps the block; the other one never sees it again by itself.
TEST(Recycled, ABlockBelongsToTheThreadThatFreedIt) {
  void* const block = RecycledBlocks::take(200);
  void* again = nullptr;
  std::thread([&] {
    RecycledBlocks::put(block, 200);
    again = RecycledBlocks::take(200);
    RecycledBlocks::put(again, 200);
  }).join();
  EXPECT_EQ(again, block);
}

// Lives longer than its thread's lists, as it is made before them.
struct FreesAtTheEndOfItsThread {
  void* block = nullptr;
  ~FreesAtTheEndOfItsThread() {
    if (block != nullptr) RecycledBlocks::put(block, 64);
  }
};
FreesAtTheEndOfItsThread& of_this_thread() {
  thread_local FreesAtTheEndOfItsThread last;
  return last;
}

// LeakSanitizer sees it if such a block, or those in the lists, were kept.
TEST(Recycled, WhatIsFreedAfterTheListsIsNotKept) {
  std::thread([] {
    FreesAtTheEndOfItsThread& last = of_this_thread();
    RecycledBlocks::put(RecycledBlocks::take(64), 64);
    last.block = RecycledBlocks::take(64);
    RecycledBlocks::put(RecycledBlocks::take(64), 64);
  }).join();
}

struct Counted {
  explicit Counted(int* count) : alive(count) { ++*alive; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { --*alive; }
  int* alive;
  std::array<std::byte, 48> more{};
};

TEST(Recycled, SharedObjectsLiveAsThoseOfMakeShared) {
  int alive = 0;
  std::weak_ptr<Counted> seen;
  {
    const std::shared_ptr<Counted> one = make_recycled<Counted>(&alive);
    seen = one;
    const std::shared_ptr<Counted> two = make_recycled<Counted>(&alive);
    EXPECT_EQ(alive, 2);
    EXPECT_NE(one.get(), two.get());
  }
  EXPECT_EQ(alive, 0);
  // The block stays as long as somebody may ask for it.
  const std::shared_ptr<Counted> three = make_recycled<Counted>(&alive);
  EXPECT_TRUE(seen.expired());
}

TEST(Recycled, LargeAndStrictlyAlignedObjectsAreMadeAsUsual) {
  struct Large {
    std::array<std::uint64_t, 200> values{};
  };
  struct alignas(128) Aligned {
    std::uint64_t value = 7;
  };
  const auto large = make_recycled<Large>();
  EXPECT_EQ(large->values[199], 0U);
  const auto aligned = make_recycled<Aligned>();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(aligned.get()) % 128, 0U);
  EXPECT_EQ(aligned->value, 7U);
}

TEST(Recycled, ShortArraysAreRecycledAndOthersMadeAsUsual) {
  RecyclingAllocator<std::uint64_t> allocator;
  constexpr std::size_t kMost = RecycledBlocks::kLargest / sizeof(std::uint64_t);
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, kMost, kMost + 1}) {
    std::uint64_t* const data = allocator.allocate(count);
    for (std::size_t i = 0; i < count; ++i) data[i] = i;
    allocator.deallocate(data, count);
    if (count == 0 || count > kMost) continue;
    std::uint64_t* const again = allocator.allocate(count);
    EXPECT_EQ(again, data) << count;
    allocator.deallocate(again, count);
  }
}

}  // namespace recycled_test
}  // namespace lockstep::detail
