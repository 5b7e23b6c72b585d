// SPDX-License-Identifier: Apache-2.0
#include <lockstep/data/distributed_sampler.hpp>

#include <lockstep/data/dataloader.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/tensor/creation.hpp>

#include "data/files.hpp"
#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace distributed_sampler_test {

using lockstep::ValueError;
using lockstep::data::CountingSampler;
using lockstep::data::DistributedSampler;
using lockstep::testing::throws;
using Indices = std::vector<std::int64_t>;

static_assert(CountingSampler<DistributedSampler>);

// The cases are what torch.utils.data.DistributedSampler(shuffle=False) gives.
TEST(DistributedSampler, DealsTheSamplesOut) {
  const auto share = [](std::int64_t size, std::int64_t replicas, std::int64_t rank,
                        bool drop_last) {
    const DistributedSampler sampler(replicas, rank, {.shuffle = false, .drop_last = drop_last});
    const Indices indices = sampler.indices(size, 0);
    EXPECT_EQ(static_cast<std::int64_t>(indices.size()), sampler.count(size));
    return indices;
  };
  EXPECT_EQ(share(6, 2, 0, false), (Indices{0, 2, 4}));
  EXPECT_EQ(share(6, 2, 1, false), (Indices{1, 3, 5}));
  EXPECT_EQ(share(7, 3, 0, false), (Indices{0, 3, 6}));
  EXPECT_EQ(share(7, 3, 1, false), (Indices{1, 4, 0}));
  EXPECT_EQ(share(7, 3, 2, false), (Indices{2, 5, 1}));
  EXPECT_EQ(share(7, 3, 2, true), (Indices{2, 5}));
  EXPECT_EQ(share(6, 3, 2, true), (Indices{2, 5}));
  // Fewer samples than replicas: some come more than once, or nobody gets any.
  EXPECT_EQ(share(2, 5, 3, false), Indices{1});
  EXPECT_EQ(share(2, 5, 4, false), Indices{0});
  EXPECT_EQ(share(2, 5, 0, true), Indices{});
  EXPECT_EQ(share(0, 5, 4, false), Indices{});
}

TEST(DistributedSampler, EverySampleComesOnceAnEpochWithWhatPaddingAdds) {
  for (const std::int64_t size : {1, 5, 24, 25, 29}) {
    for (const std::int64_t replicas : {1, 2, 3, 8}) {
      for (const bool drop_last : {false, true}) {
        std::vector<int> visits(static_cast<std::size_t>(size));
        for (std::int64_t rank = 0; rank < replicas; ++rank) {
          const DistributedSampler sampler(replicas, rank, {.seed = 3, .drop_last = drop_last});
          for (const std::int64_t i : sampler.indices(size, 1))
            ++visits[static_cast<std::size_t>(i)];
        }
        const auto total =
            drop_last ? size / replicas * replicas : (size + replicas - 1) / replicas * replicas;
        std::sort(visits.begin(), visits.end());
        EXPECT_LE(visits.back() - visits.front(), 1);
        std::int64_t sum = 0;
        for (const int count : visits) sum += count;
        EXPECT_EQ(sum, total);
        EXPECT_GE(visits.front(), drop_last ? 0 : 1);
      }
    }
  }
}

TEST(DistributedSampler, ShufflesAnewInEachEpochAndAlikeInAllRanks) {
  const auto order = [](std::uint64_t seed, std::uint64_t epoch) {
    Indices all(40);
    for (std::int64_t rank = 0; rank < 4; ++rank) {
      const Indices mine = DistributedSampler(4, rank, {.seed = seed}).indices(40, epoch);
      for (std::size_t i = 0; i < 10; ++i) all[4 * i + static_cast<std::size_t>(rank)] = mine[i];
    }
    return all;
  };
  EXPECT_NE(order(0, 0), order(0, 1));
  EXPECT_NE(order(0, 0), order(1, 0));
  // One rank alone has the same order.
  EXPECT_EQ(DistributedSampler(1, 0, {.seed = 7}).indices(40, 2), order(7, 2));
}

TEST(DistributedSampler, ABadRankIsAnError) {
  const auto make = [](std::int64_t replicas, std::int64_t rank) {
    return DistributedSampler(replicas, rank);
  };
  EXPECT_TRUE(throws<ValueError>([&] { make(2, 2); },
                                 "Invalid rank 2, rank should be in the interval [0, 1]"));
  EXPECT_TRUE(throws<ValueError>([&] { make(2, -1); }, "Invalid rank -1"));
  EXPECT_TRUE(throws<ValueError>([&] { make(0, 0); }, "num_replicas of at least 1, got 0"));
}

TEST(DistributedSampler, TheLoaderGivesItTheEpoch) {
  const lockstep::data::TensorDataset numbers{lockstep::arange(9)};
  const DistributedSampler sampler(2, 1);
  lockstep::data::DataLoader loader{numbers, sampler, {.batch_size = 2, .num_workers = 2}};
  EXPECT_EQ(loader.size(), 3);
  for (const std::uint64_t epoch : {0U, 1U}) {
    Indices seen;
    for (auto [batch] : loader) {
      for (const std::int64_t i : lockstep::testing::values_of<std::int64_t>(batch))
        seen.push_back(i);
    }
    EXPECT_EQ(seen, sampler.indices(9, epoch));
  }
}

}  // namespace distributed_sampler_test
