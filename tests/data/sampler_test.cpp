// SPDX-License-Identifier: Apache-2.0
#include <lockstep/data/sampler.hpp>
#include <lockstep/error.hpp>

#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sampler_test {

using lockstep::ValueError;
using lockstep::data::CountingSampler;
using lockstep::data::RandomSampler;
using lockstep::data::Sampler;
using lockstep::data::SequentialSampler;
using lockstep::data::SubsetRandomSampler;
using lockstep::testing::throws;
using Indices = std::vector<std::int64_t>;

static_assert(Sampler<SequentialSampler> && Sampler<RandomSampler>);

TEST(SequentialSampler, GoesFromTheFirstToTheLast) {
  EXPECT_EQ(SequentialSampler().indices(4, 7), (Indices{0, 1, 2, 3}));
  EXPECT_EQ(SequentialSampler().indices(0, 0), Indices{});
}

TEST(SequentialSampler, DrawsNoNumberOfSamplesThatNoListHas) {
  for (const std::int64_t size : {std::int64_t{-1}, INT64_MIN, INT64_MAX}) {
    EXPECT_TRUE(throws<ValueError>([&] { SequentialSampler().indices(size, 0); }, "cannot draw",
                                   std::to_string(size)));
    EXPECT_THROW((void)RandomSampler(1).indices(size, 0), ValueError);
  }
}

TEST(RandomSampler, VisitsEachSampleOnce) {
  for (const std::int64_t size : {0, 1, 2, 1000}) {
    Indices order = RandomSampler(3).indices(size, 0);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, SequentialSampler().indices(size, 0));
  }
}

TEST(RandomSampler, DependsOnSeedAndEpochAlone) {
  const Indices order = RandomSampler(1).indices(100, 0);
  EXPECT_EQ(RandomSampler(1).indices(100, 0), order);
  EXPECT_NE(RandomSampler(1).indices(100, 1), order);
  EXPECT_NE(RandomSampler(2).indices(100, 0), order);
  // Neighbours in seed and epoch do not meet.
  EXPECT_NE(RandomSampler(1).indices(100, 1), RandomSampler(0).indices(100, 0));
  EXPECT_NE(RandomSampler(0).indices(100, 1), RandomSampler(1).indices(100, 0));
}

// Training that is to be repeated elsewhere relies on these very orders.
TEST(RandomSampler, GivesTheSameOrdersEverywhere) {
  EXPECT_EQ(RandomSampler(0).indices(10, 0), (Indices{6, 1, 2, 4, 7, 5, 3, 0, 9, 8}));
  EXPECT_EQ(RandomSampler(0).indices(10, 1), (Indices{4, 6, 8, 9, 3, 5, 7, 2, 0, 1}));
}

// Each of the 6 orders of 3 samples in about a sixth of 6000 epochs: five deviations of a binomial
// distribution are 144.
TEST(RandomSampler, DrawsAllOrdersEquallyOften) {
  std::vector<int> count(27);
  for (std::uint64_t epoch = 0; epoch < 6000; ++epoch) {
    const Indices order = RandomSampler(5).indices(3, epoch);
    ++count[static_cast<std::size_t>(order[0] * 9 + order[1] * 3 + order[2])];
  }
  for (const std::size_t code : {5U, 7U, 11U, 15U, 19U, 21U}) EXPECT_NEAR(count[code], 1000, 144);
}

TEST(SubsetRandomSampler, VisitsTheSubsetInAnOrderOfItsOwnEachEpoch) {
  const SubsetRandomSampler sampler({7, 3, 11, 5, 2, 13, 17, 19}, 4);
  static_assert(CountingSampler<SubsetRandomSampler>);
  EXPECT_EQ(sampler.count(100), 8);
  Indices order = sampler.indices(100, 0);
  EXPECT_EQ(sampler.indices(100, 0), order);
  EXPECT_NE(sampler.indices(100, 1), order);
  std::sort(order.begin(), order.end());
  EXPECT_EQ(order, (Indices{2, 3, 5, 7, 11, 13, 17, 19}));
}

}  // namespace sampler_test
