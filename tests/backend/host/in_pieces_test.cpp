// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/host/in_pieces.hpp>
#include <lockstep/backend/launch_in_pieces.hpp>
#include <lockstep/backend/streams.hpp>

#include "support/gate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

namespace lockstep::detail {
namespace in_pieces_test {

using testing::Gate;
using testing::QueuedCompute;

using Ranges = std::vector<std::pair<std::size_t, std::size_t>>;

// In the order of their begins.
Ranges ranges_of(std::size_t count, std::size_t unit) {
  std::mutex mutex;
  Ranges ranges;
  in_pieces(count, unit, [&](std::size_t begin, std::size_t end) {
    const std::lock_guard lock(mutex);
    ranges.emplace_back(begin, end);
  });
  std::sort(ranges.begin(), ranges.end());
  return ranges;
}

TEST(InPieces, LittleWorkIsNotDivided) {
  EXPECT_EQ(ranges_of(0, 4), (Ranges{{0, 0}}));
  EXPECT_EQ(ranges_of(kWorthDividing - 1, 1), (Ranges{{0, kWorthDividing - 1}}));
  EXPECT_GT(ranges_of(kWorthDividing, 1).size(), 1U);
}

TEST(InPieces, TheRangesMeetAndCoverAll) {
  for (const std::size_t unit :
       {std::size_t{1}, std::size_t{4}, std::size_t{1000}, std::size_t{3} << 20}) {
    for (const std::size_t bytes :
         {kWorthDividing, (std::size_t{1} << 20) + 3 * unit, (std::size_t{40} << 20) - 7 * unit}) {
      const std::size_t count = bytes / unit + 1;
      std::size_t next = 0;
      for (const auto& [begin, end] : ranges_of(count, unit)) {
        EXPECT_EQ(begin, next);
        EXPECT_LT(begin, end);
        next = end;
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(InPieces, CopiesEveryByteAndNoOther) {
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{5}, kWorthDividing, (std::size_t{1} << 20) + 5}) {
    std::vector<unsigned char> from(bytes + 1);
    std::iota(from.begin(), from.end(), static_cast<unsigned char>(1));
    std::vector<unsigned char> to(bytes + 1, 0);
    const CopyOrder order{to.data(), "cpu:0", from.data(), "cpu", {bytes, 1, bytes, bytes},
                          nullptr};
    copy_in_pieces({&order, 1});
    EXPECT_EQ(to[bytes], 0);
    to[bytes] = from[bytes];
    EXPECT_EQ(to, from);
  }
}

// Of orders with and without gaps, some smaller than a piece and some larger, every byte is copied
// and no other.
TEST(InPieces, CopiesSeveralOrdersTogether) {
  for (const std::size_t rows : {std::size_t{1}, std::size_t{300}}) {
    const std::vector<Pitched> shapes{
        {.width = 700'000, .rows = 1, .dst_pitch = 0, .src_pitch = 0},
        {.width = 3, .rows = rows, .dst_pitch = 5, .src_pitch = 4},
        {.width = 7, .rows = 0, .dst_pitch = 9, .src_pitch = 9},
        {.width = 900, .rows = rows, .dst_pitch = 901, .src_pitch = 907},
        {.width = 1, .rows = 1, .dst_pitch = 0, .src_pitch = 0}};
    std::vector<std::vector<unsigned char>> from, to, expected;
    std::vector<CopyOrder> orders;
    for (const Pitched& shape : shapes) {
      auto& source = from.emplace_back(std::max(shape.width, shape.rows * shape.src_pitch));
      std::iota(source.begin(), source.end(), static_cast<unsigned char>(from.size()));
      to.emplace_back(std::max(shape.width, shape.rows * shape.dst_pitch), 0);
      auto& copied = expected.emplace_back(to.back());
      for (std::size_t row = 0; row < shape.rows; ++row) {
        std::copy_n(&source[row * shape.src_pitch], shape.width, &copied[row * shape.dst_pitch]);
      }
    }
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      orders.push_back({to[i].data(), "cpu:0", from[i].data(), "cpu", shapes[i], nullptr});
    }
    copy_in_pieces(orders);
    for (std::size_t i = 0; i < shapes.size(); ++i) EXPECT_EQ(to[i], expected[i]) << i;
  }
}

struct AddOne {
  View<const std::int32_t> in;
  View<std::int32_t> out;
  LOCKSTEP_HD void operator()(std::size_t i) const { out[i] = in[i] + 1; }
};

TEST(InPieces, ALaunchReachesEveryIndexInStreamOrder) {
  constexpr std::size_t kCount = (std::size_t{1} << 18) + 13;
  std::vector<std::int32_t> values(kCount);
  std::iota(values.begin(), values.end(), 0);
  const QueuedCompute queued;
  Gate gate;
  const Stream stream = current_stream("cpu:1");
  gate.hold(stream);
  for (int round = 0; round < 2; ++round) {  // the second one reads what the first one wrote
    launch_in_pieces<sizeof(std::int32_t)>(
        stream, kCount, AddOne{{values.data(), kCount}, {values.data(), kCount}});
  }
  EXPECT_FALSE(stream.query());
  gate.open();
  stream.synchronize();
  std::vector<std::int32_t> expected(kCount);
  std::iota(expected.begin(), expected.end(), 2);
  EXPECT_EQ(values, expected);
}

}  // namespace in_pieces_test
}  // namespace lockstep::detail
