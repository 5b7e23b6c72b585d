// SPDX-License-Identifier: Apache-2.0
#include <lockstep/data/sampler.hpp>
#include <lockstep/data/weighted_random_sampler.hpp>

#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

namespace weighted_random_sampler_test {

using lockstep::ValueError;
using lockstep::data::CountingSampler;
using lockstep::data::WeightedRandomSampler;
using lockstep::testing::throws;
using Indices = std::vector<std::int64_t>;

static_assert(CountingSampler<WeightedRandomSampler>);

std::map<std::int64_t, int> counts_of(const Indices& order) {
  std::map<std::int64_t, int> counts;
  for (const std::int64_t index : order) ++counts[index];
  return counts;
}

// Five deviations of a binomial distribution around what is expected.
TEST(WeightedRandomSampler, DrawsInProportionToTheWeights) {
  const WeightedRandomSampler sampler({0, 1, 0, 2, 5, 0}, 8000);
  EXPECT_EQ(sampler.count(6), 8000);
  const auto counts = counts_of(sampler.indices(6, 0));
  EXPECT_EQ(counts.size(), 3U);
  EXPECT_NEAR(counts.at(1), 1000, 148);
  EXPECT_NEAR(counts.at(3), 2000, 194);
  EXPECT_NEAR(counts.at(4), 5000, 217);
}

TEST(WeightedRandomSampler, DependsOnSeedAndEpochAlone) {
  const std::vector<double> weights(50, 0.1);
  for (const bool replacement : {false, true}) {
    const auto draw = [&](std::uint64_t seed, std::uint64_t epoch) {
      return WeightedRandomSampler(weights, 20, replacement, seed).indices(50, epoch);
    };
    EXPECT_EQ(draw(1, 1), draw(1, 1));
    EXPECT_NE(draw(1, 1), draw(1, 2));
    EXPECT_NE(draw(1, 1), draw(2, 1));
  }
}

TEST(WeightedRandomSampler, WithoutReplacementASampleComesOnceAtMost) {
  const WeightedRandomSampler sampler({1, 0, 2, 5, 3}, 4, false);
  for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
    Indices order = sampler.indices(5, epoch);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, (Indices{0, 2, 3, 4}));
  }
}

// Of weights 1, 2 and 5 the first draw is each in 1/8, 2/8 and 5/8 of the epochs; after 2 was drawn
// the next is 0 in 1/3 of them. Five deviations again.
TEST(WeightedRandomSampler, WithoutReplacementEachDrawIsInProportionToWhatIsLeft) {
  const WeightedRandomSampler sampler({1, 2, 5}, 2, false);
  std::map<std::int64_t, int> first;
  int zero_after_two = 0;
  for (std::uint64_t epoch = 0; epoch < 8000; ++epoch) {
    const Indices order = sampler.indices(3, epoch);
    ++first[order[0]];
    if (order == Indices{2, 0}) ++zero_after_two;
  }
  EXPECT_NEAR(first[0], 1000, 148);
  EXPECT_NEAR(first[1], 2000, 194);
  EXPECT_NEAR(first[2], 5000, 217);
  EXPECT_NEAR(zero_after_two, 5000 / 3.0, 182);
}

TEST(WeightedRandomSampler, TinyWeightsAreDrawnToo) {
  constexpr double kTiny = std::numeric_limits<double>::denorm_min();
  const WeightedRandomSampler sampler({0, kTiny, 0}, 100);
  EXPECT_EQ(sampler.indices(3, 0), Indices(100, 1));
  EXPECT_EQ(WeightedRandomSampler({0, kTiny, 0}, 1, false).indices(3, 0), Indices{1});
  // Five deviations.
  const WeightedRandomSampler alike({1, 8 * kTiny, 8 * kTiny}, 2, false);
  int last = 0;
  for (std::uint64_t epoch = 0; epoch < 1000; ++epoch) {
    const Indices order = alike.indices(3, epoch);
    EXPECT_EQ(order[0], 0);
    if (order[1] == 2) ++last;
  }
  EXPECT_NEAR(last, 500, 80);
}

TEST(WeightedRandomSampler, WhatCannotBeDrawnIsAnError) {
  using Sampler = WeightedRandomSampler;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kMax = std::numeric_limits<double>::max();
  EXPECT_TRUE(throws<ValueError>([] { Sampler({1}, 0); }, "num_samples=0"));
  EXPECT_TRUE(throws<ValueError>([] { Sampler({1, -1}, 1); }, "weight 1 is -1"));
  EXPECT_TRUE(throws<ValueError>([&] { Sampler({kInfinity}, 1); }, "weight 0 is inf"));
  EXPECT_TRUE(throws<ValueError>([&] { Sampler({kNan}, 1); }, "weight 0 is nan"));
  EXPECT_TRUE(throws<ValueError>([&] { Sampler({kMax, kMax}, 1); }, "the sum of the weights"));
  EXPECT_TRUE(throws<ValueError>([] { Sampler({0, 0}, 1); }, "0 of the weights are above 0"));
  EXPECT_TRUE(throws<ValueError>([] { Sampler({}, 1); }, "0 of the weights are above 0"));
  EXPECT_TRUE(throws<ValueError>(
      [] {
        Sampler({1, 0, 1}, 3, false);
      },
      "2 of the weights are above 0, at least 3 must be"));
  EXPECT_TRUE(throws<ValueError>(
      [] {
        (void)Sampler({1, 1}, 1).indices(3, 0);
      },
      "got 2 weights for a dataset of size 3"));
}

}  // namespace weighted_random_sampler_test
