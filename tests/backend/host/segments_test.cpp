// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/host/poison.hpp>
#include <lockstep/backend/host/segments.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace lockstep::detail {
namespace segments_test {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Memory that the tests count, and that ends when they say so.
int taken = 0;
int most = 0;
std::size_t last = 0;       // how many bytes were asked for
std::size_t populated = 0;  // how many were to be cleared at once

void* take(std::size_t bytes) {
  if (taken == most) return nullptr;
  ++taken;
  last = bytes;
  return OrdinaryMemory::take(bytes);
}
void give_back(void* data) {
  --taken;
  OrdinaryMemory::give_back(data);
}

void populate(void* data, std::size_t bytes) {
  populated += bytes;
  OrdinaryMemory::populate(data, bytes);
}

class SegmentsTest : public ::testing::Test {
 protected:
  SegmentsTest() { taken = 0, most = 1000, populated = 0; }
  ~SegmentsTest() override {
    release(held);
    EXPECT_EQ(taken, 0);
    EXPECT_EQ(segments.bytes(), 0U);
  }

  std::byte* cut(std::size_t bytes) {
    void* data = segments.cut(bytes, source);
    if (data) {
      unpoison(data, bytes);
      held.push_back(data);
    }
    return static_cast<std::byte*>(data);
  }

  // What is left of `idle` when those have gone whose segments could be given back.
  std::vector<void*> release(std::vector<void*> idle) {
    for (void* block : idle) segments.count_idle(block);
    const auto gone = [&](void* block) { return segments.all_idle(block); };
    std::erase_if(held, [&](void* block) { return gone(block); });
    std::erase_if(idle, gone);
    segments.release(source);
    return idle;
  }

  const HostMemorySource source{&take, &give_back, true, &populate};
  Segments segments{2 * kMiB};
  std::vector<void*> held;
};

TEST_F(SegmentsTest, CutsBlocksOfAnySizeOneBehindTheOther) {
  std::byte* const first = cut(kMiB / 2);
  EXPECT_EQ(cut(kMiB), first + kMiB / 2);
  EXPECT_EQ(cut(kMiB / 4), first + kMiB / 2 + kMiB);
  EXPECT_EQ(cut(kMiB / 4), first + 2 * kMiB - kMiB / 4);
  EXPECT_EQ(taken, 1);
  EXPECT_EQ(segments.bytes(), 2 * kMiB);
  EXPECT_NE(cut(1), nullptr);
  EXPECT_EQ(taken, 2);
}

TEST_F(SegmentsTest, FillsWhatALargerBlockLeftOver) {
  std::byte* const first = cut(kMiB + kMiB / 2);
  std::byte* const second = cut(kMiB + kMiB / 2);
  EXPECT_EQ(cut(kMiB / 2), first + kMiB + kMiB / 2);
  EXPECT_EQ(cut(kMiB / 4), second + kMiB + kMiB / 2);
  EXPECT_EQ(taken, 2);
}

TEST_F(SegmentsTest, LooksAtNoMoreThanEightSegmentsThatHaveRoom) {
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 9; ++i) blocks.push_back(cut(kMiB + kMiB / 2));
  EXPECT_EQ(cut(kMiB / 2), blocks[1] + kMiB + kMiB / 2);
  EXPECT_EQ(taken, 9);
}

TEST_F(SegmentsTest, GivesBackASegmentOnlyWhenAllItsBlocksAreIdle) {
  std::byte* const used = cut(kMiB);
  std::byte* const idle = cut(kMiB / 2);
  std::byte* const alone = cut(2 * kMiB);
  std::memset(used, 1, kMiB);
  EXPECT_EQ(release({idle, alone}), std::vector<void*>{idle});
  EXPECT_EQ(taken, 1);
  EXPECT_EQ(used[kMiB - 1], std::byte{1});
  // What has not been cut from it still can be, and nothing is counted twice.
  EXPECT_EQ(cut(kMiB / 2), used + kMiB + kMiB / 2);
  EXPECT_EQ(release({idle, used}), (std::vector<void*>{idle, used}));
}

TEST_F(SegmentsTest, CutsNothingFromWhatItHasGivenBack) {
  std::byte* const first = cut(kMiB);
  EXPECT_TRUE(release({first}).empty());
  EXPECT_EQ(taken, 0);
  EXPECT_NE(cut(kMiB), nullptr);
  EXPECT_EQ(taken, 1);
}

TEST_F(SegmentsTest, CutsWhatIsThereWhenThereIsNoMoreMemory) {
  most = 1;
  std::byte* const first = cut(kMiB);
  EXPECT_EQ(cut(kMiB + 1), nullptr);
  EXPECT_EQ(segments.bytes(), 2 * kMiB);
  EXPECT_EQ(cut(kMiB), first + kMiB);
  EXPECT_EQ(cut(1), nullptr);
}

TEST_F(SegmentsTest, TheFirstOfAllMayBeASmallOne) {
  Segments some{2 * kMiB, kMiB / 8};
  const auto release = [&](const std::vector<void*>& idle) {
    for (void* block : idle) some.count_idle(block);
    some.release(source);
  };
  for (int round = 0; round < 2; ++round) {
    void* const first = some.cut(kMiB / 16, source);
    EXPECT_EQ(last, kMiB / 8) << "no whole huge page";
    void* const second = some.cut(kMiB / 16, source);
    EXPECT_EQ(second, static_cast<std::byte*>(first) + kMiB / 16);
    EXPECT_EQ(some.bytes(), kMiB / 8);
    void* const third = some.cut(kMiB / 16, source);
    EXPECT_EQ(last, 2 * kMiB);
    EXPECT_EQ(some.bytes(), 2 * kMiB + kMiB / 8);
    EXPECT_EQ(std::exchange(populated, 0), kMiB / 8) << "a huge page needs no advice";
    release({first, second});
    EXPECT_EQ(some.bytes(), 2 * kMiB);
    release({third});
    EXPECT_EQ(some.bytes(), 0U);
  }
  void* const large = some.cut(kMiB / 4, source);
  EXPECT_EQ(last, 2 * kMiB);
  release({large});
  EXPECT_EQ(taken, 0);
}

}  // namespace segments_test
}  // namespace lockstep::detail
