// SPDX-License-Identifier: Apache-2.0
#include <lockstep/data/dataloader.hpp>

#include <lockstep/data/sampler.hpp>
#include <lockstep/data/weighted_random_sampler.hpp>
#include <lockstep/tensor/creation.hpp>

#include "data/files.hpp"

#include <gtest/gtest.h>

#include <any>
#include <array>
#include <cstdint>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace dataloader_test {

using lockstep::arange;
using lockstep::Tensor;
using lockstep::data::DataLoader;
using lockstep::data::TensorDataset;
using lockstep::testing::message_of;
using lockstep::testing::values_of;
using Indices = std::vector<std::int64_t>;

template <class Loader>
std::vector<Indices> pass(Loader& loader) {
  std::vector<Indices> batches;
  for (auto [numbers] : loader) batches.push_back(values_of<std::int64_t>(numbers));
  return batches;
}

using CountingLoader = DataLoader<TensorDataset<1>>;
static_assert(std::input_iterator<CountingLoader::Iterator>);
static_assert(std::sentinel_for<std::default_sentinel_t, CountingLoader::Iterator>);

TEST(DataLoader, GivesBatchesInOrder) {
  DataLoader loader{TensorDataset{arange(7)}, {.batch_size = 3}};
  EXPECT_EQ(loader.size(), 3);
  EXPECT_EQ(pass(loader), (std::vector<Indices>{{0, 1, 2}, {3, 4, 5}, {6}}));
  EXPECT_EQ(pass(loader), (std::vector<Indices>{{0, 1, 2}, {3, 4, 5}, {6}}));
}

TEST(DataLoader, LeavesOutAPartOfABatch) {
  DataLoader loader{TensorDataset{arange(7)}, {.batch_size = 3, .drop_last = true}};
  EXPECT_EQ(loader.size(), 2);
  EXPECT_EQ(pass(loader), (std::vector<Indices>{{0, 1, 2}, {3, 4, 5}}));
  DataLoader large{TensorDataset{arange(2)}, {.batch_size = 3, .drop_last = true}};
  EXPECT_EQ(large.size(), 0);
  EXPECT_EQ(pass(large), std::vector<Indices>{});
}

TEST(DataLoader, AnIteratorThatHasBeenMovedFromIsAtTheEnd) {
  DataLoader loader{TensorDataset{arange(4)}, {.batch_size = 2}};
  auto from = loader.begin();
  auto batch = std::move(from);
  EXPECT_TRUE(from == loader.end());
  ++from;
  EXPECT_TRUE(from == loader.end());
  ++batch;
  EXPECT_EQ(values_of<std::int64_t>(std::get<0>(*batch)), (Indices{2, 3}));
}

TEST(DataLoader, BatchesMayBeLargerThanTheDataset) {
  DataLoader loader{TensorDataset{arange(2)}, {.batch_size = INT64_MAX}};
  EXPECT_EQ(loader.size(), 1);
  EXPECT_EQ(pass(loader), (std::vector<Indices>{{0, 1}}));
}

TEST(DataLoader, AnEmptyDatasetHasNoBatches) {
  DataLoader loader{TensorDataset{arange(0)}, {.batch_size = 3, .shuffle = true}};
  EXPECT_EQ(loader.size(), 0);
  EXPECT_EQ(pass(loader), std::vector<Indices>{});
}

TEST(DataLoader, ABatchSizeBelowOneIsAnError) {
  const auto make = [](std::int64_t size) {
    return DataLoader{TensorDataset{arange(7)}, {.batch_size = size}};
  };
  EXPECT_EQ(message_of<lockstep::ValueError>([&] { make(0); }),
            "DataLoader: expected a batch size of at least 1, got 0");
  EXPECT_THROW(make(-3), lockstep::ValueError);
}

TEST(DataLoader, ShufflesAnewInEachEpochAndAlikeForASeed) {
  const auto make = [](std::uint64_t seed) {
    return DataLoader{TensorDataset{arange(50)}, {.batch_size = 20, .shuffle = true, .seed = seed}};
  };
  auto loader = make(1);
  const auto first = pass(loader);
  const auto second = pass(loader);
  EXPECT_NE(first, second);
  EXPECT_EQ(loader.epoch(), 2U);
  auto same = make(1);
  EXPECT_EQ(pass(same), first);
  EXPECT_EQ(pass(same), second);
  auto other = make(2);
  EXPECT_NE(pass(other), first);

  loader.set_epoch(0);
  EXPECT_EQ(pass(loader), first);
  EXPECT_EQ(loader.epoch(), 1U);
}

// Which a loop that goes on after the error makes again.
TEST(DataLoader, APassThatCannotBeginIsNoEpoch) {
  struct Failing {
    bool* fails;
    std::int64_t size() const { return 4; }
    std::int64_t get(std::int64_t i) const {
      if (*fails) throw std::runtime_error("unreadable");
      return i;
    }
  };
  bool fails = true;
  DataLoader loader{Failing{&fails}, {.batch_size = 2}};
  EXPECT_THROW((void)loader.begin(), std::runtime_error);
  EXPECT_EQ(loader.epoch(), 0U);
  fails = false;
  (void)loader.begin();
  EXPECT_EQ(loader.epoch(), 1U);
}

TEST(DataLoader, KeepsTheTensorsOfASampleTogether) {
  const TensorDataset dataset{arange(30), arange(30)};
  DataLoader loader{dataset, {.batch_size = 7, .shuffle = true}};
  for (const auto& [left, right] : loader) {
    EXPECT_EQ(values_of<std::int64_t>(left), values_of<std::int64_t>(right));
  }
}

// Samples one by one, of a type that collate takes apart; not copyable, and no handle.
struct Words {
  std::unique_ptr<std::vector<std::string>> words;

  std::int64_t size() const { return static_cast<std::int64_t>(words->size()); }
  std::pair<std::string, int> get(std::int64_t i) const {
    const std::string& word = words->at(static_cast<std::size_t>(i));
    return {word, static_cast<int>(word.size())};
  }
};

TEST(DataLoader, CollatesSamples) {
  Words words{
      std::make_unique<std::vector<std::string>>(std::vector<std::string>{"one", "two", "three"})};
  DataLoader loader{std::move(words), {.batch_size = 2}};
  std::vector<std::string> all;
  Indices lengths;
  for (auto [batch, sizes] : loader) {
    all.insert(all.end(), batch.begin(), batch.end());
    for (const std::int64_t size : values_of<std::int64_t>(sizes)) lengths.push_back(size);
  }
  EXPECT_EQ(all, (std::vector<std::string>{"one", "two", "three"}));
  EXPECT_EQ(lengths, (Indices{3, 3, 5}));
}

TEST(DataLoader, TakesASamplerThatDrawsMoreOrFewer) {
  struct Tens {
    std::vector<std::int64_t> indices(std::int64_t size, std::uint64_t epoch) const {
      Indices order;
      for (std::int64_t i = 0; i < size; i += 10) order.push_back(i);
      if (epoch == 1) order.push_back(0);
      return order;
    }
  };
  DataLoader loader{TensorDataset{arange(40)}, Tens(), {.batch_size = 2}};
  EXPECT_EQ(loader.size(), 2);
  EXPECT_EQ(pass(loader), (std::vector<Indices>{{0, 10}, {20, 30}}));
  EXPECT_EQ(loader.size(), 3);
  EXPECT_EQ(pass(loader), (std::vector<Indices>{{0, 10}, {20, 30}, {0}}));

  const lockstep::data::WeightedRandomSampler even(std::vector<double>(40, 1.0), 101);
  DataLoader many{TensorDataset{arange(40)}, even, {.batch_size = 10, .drop_last = true}};
  EXPECT_EQ(many.size(), 10);
  EXPECT_EQ(pass(many).size(), 10U);
}

TEST(DataLoader, ASamplerAndShuffleExcludeEachOther) {
  const lockstep::data::SequentialSampler sampler;
  EXPECT_EQ(message_of<lockstep::ValueError>([&] {
              DataLoader{TensorDataset{arange(4)}, sampler, {.shuffle = true}};
            }),
            "DataLoader: sampler option is mutually exclusive with shuffle");
}

TEST(DataLoader, ASampleThatIsNotThereIsAnError) {
  for (const std::int64_t bad : {-1, 4}) {
    const lockstep::data::SubsetRandomSampler sampler({1, bad, 2});
    DataLoader loader{TensorDataset{arange(4)}, sampler};
    EXPECT_EQ(
        message_of<lockstep::IndexError>([&] { loader.begin(); }),
        "DataLoader: the sampler drew sample " + std::to_string(bad) + ", but the dataset has 4");
  }
}

TEST(DataLoader, BatchesAreMadeByAFunctionIfOneIsGiven) {
  const auto sum = [](const std::vector<std::array<Tensor, 1>>& samples) {
    std::int64_t total = 0;
    for (const auto& [number] : samples) total += values_of<std::int64_t>(number)[0];
    return total;
  };
  const TensorDataset numbers{arange(5)};
  DataLoader loader{numbers, {.batch_size = 2}, sum};
  std::vector<std::int64_t> sums;
  for (const std::int64_t total : loader) sums.push_back(total);
  EXPECT_EQ(sums, (Indices{1, 5, 4}));

  const lockstep::data::SubsetRandomSampler some({3, 4});
  DataLoader sampled{numbers, some, {.batch_size = 2, .num_workers = 1}, sum};
  for (const std::int64_t total : sampled) EXPECT_EQ(total, 7);

  // What converts to and from anything.
  const auto any_sum = [&sum](const auto& samples) { return std::any(sum(samples)); };
  DataLoader boxed{numbers, {.batch_size = 5}, any_sum};
  for (const std::any& total : boxed) EXPECT_EQ(std::any_cast<std::int64_t>(total), 10);
}

}  // namespace dataloader_test
