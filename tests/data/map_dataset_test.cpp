// SPDX-License-Identifier: Apache-2.0
#include <lockstep/data/map_dataset.hpp>

#include <lockstep/data/dataloader.hpp>
#include <lockstep/data/sampler.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/empty.hpp>

#include "data/files.hpp"
#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

namespace map_dataset_test {

using lockstep::Generator;
using lockstep::Shape;
using lockstep::Tensor;
using lockstep::data::DataLoader;
using lockstep::data::MapDataset;
using lockstep::data::RandomSampleDataset;
using lockstep::data::SampleDataset;
using lockstep::data::TensorDataset;
using lockstep::testing::throws;
using lockstep::testing::values_of;

// Sample i is i.
struct Numbers {
  std::int64_t count = 0;
  std::int64_t size() const { return count; }
  std::int64_t get(std::int64_t i) const { return i; }
};

std::int64_t doubled(std::int64_t number) { return 2 * number; }

std::uint64_t draw(std::int64_t /*number*/, Generator& generator) {
  return generator.below(1 << 30);
}

TEST(MapDataset, PassesSamplesThroughTheFunction) {
  const MapDataset twice{Numbers{4}, doubled};
  EXPECT_EQ(twice.size(), 4);
  EXPECT_EQ(twice.get(3), 6);
  const MapDataset more{twice, [](std::int64_t number) { return number + 1; }};
  EXPECT_EQ(more.get(3), 7);
  static_assert(SampleDataset<decltype(more)> && !RandomSampleDataset<decltype(more)>);
}

TEST(MapDataset, IsRandomIfATransformIs) {
  const MapDataset inner{Numbers{4}, draw};
  const MapDataset outer{inner, [](std::uint64_t number) { return number % 7; }};
  static_assert(RandomSampleDataset<decltype(inner)> && RandomSampleDataset<decltype(outer)>);
  Generator a(5);
  Generator b(5);
  EXPECT_EQ(outer.get(0, a), inner.get(0, b) % 7);
}

template <class Loader>
std::vector<std::vector<std::int64_t>> pass(Loader& loader) {
  std::vector<std::vector<std::int64_t>> batches;
  for (const Tensor& batch : loader) batches.push_back(values_of<std::int64_t>(batch));
  return batches;
}

TEST(MapDataset, WhatIsDrawnDependsOnSeedEpochAndSampleAlone) {
  const auto numbers = [](lockstep::data::DataLoaderOptions options) {
    DataLoader loader{MapDataset{Numbers{30}, draw}, options};
    const auto first = pass(loader);
    return std::pair(first, pass(loader));
  };
  const auto [first, second] = numbers({.batch_size = 30, .seed = 1});
  EXPECT_NE(first, second);
  EXPECT_EQ(std::set<std::int64_t>(first[0].begin(), first[0].end()).size(), 30U);
  EXPECT_NE(numbers({.batch_size = 30, .seed = 2}).first, first);

  // The same for each sample in whatever order and batches they come.
  const auto shuffled = numbers({.batch_size = 7, .shuffle = true, .seed = 1, .num_workers = 2});
  const auto order = lockstep::data::RandomSampler(1).indices(30, 0);
  for (std::size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(shuffled.first[i / 7][i % 7], first[0][static_cast<std::size_t>(order[i])]);
  }
}

TEST(MapDataset, ASampleThatIsVisitedTwiceIsDrawnAnew) {
  struct Twice {
    std::vector<std::int64_t> indices(std::int64_t, std::uint64_t) const { return {3, 3, 1, 3}; }
  };
  DataLoader loader{MapDataset{Numbers{4}, draw}, Twice(), {.batch_size = 4}};
  const auto drawn = pass(loader)[0];
  EXPECT_EQ(std::set<std::int64_t>(drawn.begin(), drawn.end()).size(), 4U);
}

using Sample = std::array<Tensor, 2>;  // an image (1, 12, 12) and its label

// A part of the image, 8 × 8, from a random place, mirrored or not, and a little noise.
Sample augment(const Sample& sample, Generator& generator) {
  constexpr std::size_t kFrom = 12;
  constexpr std::size_t kTo = 8;
  const std::size_t top = generator.below(kFrom - kTo + 1);
  const std::size_t left = generator.below(kFrom - kTo + 1);
  const bool mirrored = generator.uniform() < 0.5;
  const Tensor image = lockstep::empty({1, kTo, kTo});
  const float* from = sample[0].const_data_ptr<float>();
  float* to = image.mutable_data_ptr<float>();
  for (std::size_t y = 0; y < kTo; ++y) {
    for (std::size_t x = 0; x < kTo; ++x) {
      const std::size_t column = mirrored ? kTo - 1 - x : x;
      to[y * kTo + x] =
          from[(top + y) * kFrom + left + column] + static_cast<float>(0.01 * generator.normal());
    }
  }
  return {image, sample[1]};
}

TEST(MapDataset, AugmentationsAreTheSameWithAnyNumberOfWorkers) {
  lockstep::manual_seed(4);
  const TensorDataset images{lockstep::rand({50, 1, 12, 12}), lockstep::arange(50)};
  using Epoch = std::vector<std::pair<std::vector<float>, std::vector<std::int64_t>>>;
  std::optional<std::vector<Epoch>> expected;
  for (const std::int64_t workers : {0, 1, 2, 4, 7}) {
    DataLoader loader{MapDataset{images, augment},
                      {.batch_size = 8, .shuffle = true, .seed = 9, .num_workers = workers}};
    std::vector<Epoch> epochs(2);
    for (Epoch& epoch : epochs) {
      for (const auto& [image, label] : loader) {
        EXPECT_EQ(image.sizes(), (Shape{label.size(0), 1, 8, 8}));
        epoch.emplace_back(values_of<float>(image), values_of<std::int64_t>(label));
      }
    }
    EXPECT_NE(epochs[0], epochs[1]);
    if (!expected) expected = epochs;
    EXPECT_EQ(epochs, *expected) << workers << " workers";
  }
}

TEST(MapDataset, TheTransformsExceptionsReachTheLoop) {
  for (const std::int64_t workers : {0, 1, 2, 4, 7}) {
    const MapDataset picky{Numbers{20}, [](std::int64_t number) {
                             if (number == 9) throw std::domain_error("no nines");
                             return number;
                           }};
    DataLoader loader{picky, {.batch_size = 4, .num_workers = workers}};
    int batches = 0;
    EXPECT_TRUE(throws<std::domain_error>(
        [&] {
          for ([[maybe_unused]] const Tensor& batch : loader) ++batches;
        },
        "no nines; it comes from the dataset's sample 9"));
    EXPECT_EQ(batches, 2);
  }
}

}  // namespace map_dataset_test
