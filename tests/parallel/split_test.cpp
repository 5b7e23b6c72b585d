// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/split.hpp>

#include <lockstep/error.hpp>

#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

namespace ls = lockstep;
using ls::split_sizes;
using ls::testing::throws;

namespace split_test {

using Sizes = std::vector<std::int64_t>;

// The table of torch.chunk's results for n rows over k devices.
TEST(Split, ChunkIsTorchsRule) {
  struct Case {
    std::int64_t rows;
    std::size_t devices;
    Sizes sizes;
  };
  const std::vector<Case> cases = {
      {10, 3, {4, 4, 2}},   {5, 4, {2, 2, 1}},
      {15, 2, {8, 7}},      {6, 4, {2, 2, 2}},
      {20, 2, {10, 10}},    {7, 2, {4, 3}},
      {1, 2, {1}},          {10, 4, {3, 3, 3, 1}},
      {2, 3, {1, 1}},       {13, 4, {4, 4, 4, 1}},
      {8, 3, {3, 3, 2}},    {12, 5, {3, 3, 3, 3}},
      {7, 3, {3, 3, 1}},    {36, 7, {6, 6, 6, 6, 6, 6}},
      {7, 4, {2, 2, 2, 1}}, {9, 8, {2, 2, 2, 2, 1}},
      {3, 4, {1, 1, 1}},    {9, 3, {3, 3, 3}},
      {4, 3, {2, 2}},       {100, 8, {13, 13, 13, 13, 13, 13, 13, 9}},
      {0, 3, {0, 0, 0}},    {2, 2, {1, 1}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(split_sizes(c.rows, c.devices), c.sizes) << c.rows << " over " << c.devices;
  }
}

TEST(Split, BalancedLeavesNoDeviceIdleWhileThereIsARow) {
  EXPECT_EQ(split_sizes(17, 16, ls::Split::balanced).size(), 16U);
  EXPECT_EQ(split_sizes(10, 4, ls::Split::balanced), (Sizes{3, 3, 2, 2}));
  EXPECT_EQ(split_sizes(2, 3, ls::Split::balanced), (Sizes{1, 1}));
  EXPECT_EQ(split_sizes(0, 2, ls::Split::balanced), (Sizes{0, 0}));
}

TEST(Split, EveryRuleKeepsAllRows) {
  for (std::int64_t rows = 1; rows <= 40; ++rows) {
    for (std::size_t devices = 1; devices <= 9; ++devices) {
      std::vector<double> weights;
      for (std::size_t i = 0; i < devices; ++i)
        weights.push_back(i % 3 == 0 ? 0.01 : 7.0 * static_cast<double>(i));
      const ls::Split weighted = ls::Split::weights(weights);
      for (const ls::Split& split : {ls::Split::chunk, ls::Split::balanced, weighted}) {
        const Sizes sizes = split_sizes(rows, devices, split);
        EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}), rows);
        EXPECT_LE(sizes.size(), devices);
        EXPECT_GT(*std::min_element(sizes.begin(), sizes.end()), 0);
        if (split != ls::Split::chunk) {
          EXPECT_EQ(sizes.size(), std::min(devices, static_cast<std::size_t>(rows)));
        }
        if (split == ls::Split::balanced) {
          const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
          EXPECT_LE(*most - *least, 1);
        }
      }
    }
  }
}

TEST(Split, WeightsAreProportions) {
  EXPECT_EQ(split_sizes(100, 3, ls::Split::weights({1, 2, 1})), (Sizes{25, 50, 25}));
  EXPECT_EQ(split_sizes(7, 2, ls::Split::weights({2, 1})), (Sizes{5, 2}));
  EXPECT_EQ(split_sizes(0, 2, ls::Split::weights({2, 1})), (Sizes{0, 0}));
  EXPECT_EQ(split_sizes(4, 4, ls::Split::weights({1000, 1, 1, 1})), (Sizes{1, 1, 1, 1}));
  EXPECT_EQ(split_sizes(5, 4, ls::Split::weights({1, 1000, 1, 1})), (Sizes{1, 2, 1, 1}));
}

TEST(Split, FewerDevicesWhereEachIsToHaveSomeRows) {
  EXPECT_EQ(split_sizes(3, 2, ls::Split::balanced.at_least(2)), Sizes{3});
  EXPECT_EQ(split_sizes(7, 3, ls::Split::chunk.at_least(2)), (Sizes{4, 3}));
  EXPECT_EQ(split_sizes(9, 4, ls::Split::balanced.at_least(2)), (Sizes{3, 2, 2, 2}));
  EXPECT_EQ(split_sizes(9, 3, ls::Split::weights({8, 1, 1}).at_least(2)), Sizes{9});
  EXPECT_EQ(split_sizes(12, 3, ls::Split::weights({4, 2, 1}).at_least(3)), (Sizes{8, 4}));
  EXPECT_EQ(split_sizes(1, 4, ls::Split::chunk.at_least(2)), Sizes{1});
  EXPECT_TRUE(throws<ls::ValueError>([] { (void)ls::Split::chunk.at_least(0); },
                                     "at_least: expected at least 1 row, got 0"));
}

TEST(Split, WeightsHaveAFiniteSum) {
  EXPECT_EQ(split_sizes(10, 2, ls::Split::weights({8e307, 8e307})), (Sizes{5, 5}));
  EXPECT_TRUE(throws<ls::ValueError>(
      [] {
        (void)ls::Split::weights({1e308, 1e308});
      },
      "Split::weights: expected weights whose sum is finite"));
}

TEST(Split, SizesAreTakenAsGiven) {
  EXPECT_EQ(split_sizes(6, 3, ls::Split::sizes({1, 0, 5})), (Sizes{1, 0, 5}));
  EXPECT_TRUE(throws<ls::ValueError>(
      [] {
        split_sizes(6, 2, ls::Split::sizes({-1, 7}));
      },
      "non-negative", "-1"));
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_TRUE(throws<ls::ValueError>(
      [] {
        split_sizes(4, 3, ls::Split::sizes({kMost, kMost, 6}));  // 4 modulo 2^64
      },
      "to sum to 4", "they sum to more than 64 bits hold"));
  EXPECT_TRUE(throws<ls::ValueError>(
      [] {
        split_sizes(kMost, 2, ls::Split::sizes({kMost, 7}));
      },
      "they sum to more than 64 bits hold"));
}

TEST(Split, RowsMayBeAsManyAsANumberHolds) {
  constexpr std::int64_t kUneven = (std::int64_t{1} << 53) + 1;  // no double is as much
  for (const std::int64_t rows : {std::numeric_limits<std::int64_t>::max(), kUneven}) {
    for (const ls::Split& split :
         {ls::Split::chunk, ls::Split::balanced, ls::Split::weights({1, 1, 1})}) {
      std::int64_t left = rows;
      for (const std::int64_t size : split_sizes(rows, 3, split)) {
        EXPECT_GT(size, 0);
        left -= size;
      }
      EXPECT_EQ(left, 0);
    }
  }
}

TEST(Split, ThereAreNoFewerThanNoRows) {
  for (const ls::Split& split : {ls::Split::chunk, ls::Split::balanced, ls::Split::weights({1, 2})})
    EXPECT_TRUE(throws<ls::ValueError>([&] { split_sizes(-5, 2, split); },
                                       "split_sizes: expected at least 0 rows, got -5"));
}

TEST(Split, NoDevicesAreAnError) {
  EXPECT_TRUE(throws<ls::ValueError>([] { split_sizes(3, 0); }, "at least one device"));
}

}  // namespace split_test
