// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/inference_mode.hpp>
#include <lockstep/data/dataloader.hpp>
#include <lockstep/data/prefetch.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/nn/loss.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/loss.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/criterion.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/tensor/creation.hpp>

#include "data/batch_source.hpp"
#include "support/devices.hpp"
#include "support/expect_error.hpp"
#include "support/forked.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// What prefetch yields: which batches, in which form, where. When it does so is in
// prefetch_order_test.cpp.
namespace lockstep::data {
namespace prefetch_test {

using testing::BatchSource;
using testing::first_devices;
using testing::throws;
using Values = std::vector<float>;

const Device kFirst("cpu:0");
const Device kSecond("cpu:1");

Values values_of(const Tensor& tensor) { return tensor.to(Device()).to_vector<float>(); }

Tensor counting(std::int64_t rows, std::int64_t columns = 2, float first = 0) {
  Values values;
  for (std::int64_t i = 0; i < rows * columns; ++i) values.push_back(first + float(i));
  return from_values(values, {rows, columns});
}

using Pair = std::tuple<Tensor, Tensor>;

// `count` batches of 6 rows; batch i holds i.
BatchSource<Pair> pairs(std::int64_t count) {
  return {count, [](std::int64_t i) {
            return Pair(full({6, 2}, double(i)), full({6}, double(10 * i)));
          }};
}

struct AddOne {
  Tensor forward(const Tensor& x) const { return x + 1; }
};

TEST(Prefetch, ForOtherDevicesThanTheModelsIsAnErrorThatNamesPartAndDevices) {
  auto source = pairs(1);
  DataParallelModel model{AddOne{}, {kFirst, kSecond}};
  DataParallelCriterion criterion{nn::MSELoss{}};
  for (auto [images, labels] : prefetch(source, {kSecond, kFirst})) {
    EXPECT_TRUE(throws<DeviceError>([&, &images = images] { (void)model(images); },
                                    "args[0]: part 0 is on cpu:1", "to be used on cpu:0",
                                    "in their order"));
    EXPECT_TRUE(throws<DeviceError>(
        [&, &images = images, &labels = labels] {
          (void)criterion(scatter(images[0], model.devices()), labels);
        },
        "args[1]: part 0 is on cpu:1"));
  }
}

TEST(Prefetch, EachElementComesInPartsThatAreOnTheDevices) {
  const std::vector<Device> devices = first_devices(3);
  auto source = pairs(5);
  auto range = prefetch(source, devices);
  static_assert(
      std::is_same_v<decltype(range)::Placed, std::tuple<Scattered<Tensor>, Scattered<Tensor>>>);
  static_assert(std::input_iterator<decltype(range)::Iterator>);
  static_assert(std::sentinel_for<std::default_sentinel_t, decltype(range)::Iterator>);
  float number = 0;
  for (auto [images, labels] : range) {
    ASSERT_EQ(images.size(), 3U);
    ASSERT_EQ(labels.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(images[i].device(), devices[i]);
      EXPECT_EQ(labels[i].device(), devices[i]);
      EXPECT_EQ(values_of(images[i]), Values(4, number));
      EXPECT_EQ(values_of(labels[i]), Values(2, 10 * number));
    }
    ++number;
  }
  EXPECT_EQ(number, 5);
}

TEST(Prefetch, OnOneDeviceTheBatchIsAsItWas) {
  auto source = pairs(3);
  auto range = prefetch(source, kSecond);
  static_assert(std::is_same_v<decltype(range)::Placed, Pair>);
  float number = 0;
  for (auto [images, labels] : range) {
    EXPECT_EQ(images.device(), kSecond);
    EXPECT_EQ(labels.device(), kSecond);
    EXPECT_EQ(values_of(images), Values(12, number));
    EXPECT_EQ(values_of(labels), Values(6, 10 * number++));
  }
  EXPECT_EQ(number, 3);
}

TEST(Prefetch, OnPlainHostMemoryNothingIsCopied) {
  const Tensor only = counting(4);
  const std::vector<Tensor> batches(3, only);
  int number = 0;
  for (const Tensor& batch : prefetch(batches, "cpu")) {
    EXPECT_EQ(batch.impl()->data(), only.impl()->data());
    ++number;
  }
  EXPECT_EQ(number, 3);
}

TEST(Prefetch, ADeviceInBracesIsAListOfOne) {
  auto source = pairs(1);
  for (auto [images, labels] : prefetch(source, {"cpu:1"})) {
    ASSERT_EQ(images.size(), 1U);
    EXPECT_EQ(images[0].device(), kSecond);
    EXPECT_EQ(values_of(labels[0]), Values(6, 0));
  }
}

TEST(Prefetch, AnElementMayBeAskedForWhole) {
  const std::vector<Device> devices = first_devices(2);
  auto source = pairs(2);
  float number = 0;
  for (auto [images, labels] : prefetch(source, devices, whole<1>("cpu:3"))) {
    ASSERT_EQ(images.size(), 2U);
    EXPECT_EQ(values_of(images[1]), Values(6, number));
    EXPECT_EQ(labels.device(), Device("cpu:3"));
    EXPECT_EQ(values_of(labels), Values(6, 10 * number++));
  }
  auto both = prefetch(source, devices, {.depth = 1}, whole<1>(Device()), whole<0>(kSecond));
  static_assert(std::is_same_v<decltype(both)::Placed, Pair>);
  number = 0;
  for (auto [images, labels] : both) {
    EXPECT_EQ(images.device(), kSecond);
    EXPECT_EQ(labels.device(), Device());
    EXPECT_EQ(values_of(labels), Values(6, 10 * number++));
  }
  EXPECT_EQ(number, 2);
}

struct Sample {
  Tensor image;
  std::map<std::string, Tensor> labels;
  int tag = 0;
};

TEST(Prefetch, TheFormOfABatchIsKept) {
  const std::vector<Device> devices = first_devices(2);
  {
    const std::vector<Tensor> batches{counting(4)};
    auto range = prefetch(batches, devices);
    static_assert(std::is_same_v<decltype(range)::Placed, Scattered<Tensor>>);
    for (const Scattered<Tensor>& parts : range) {
      EXPECT_EQ(values_of(parts[1]), (Values{4, 5, 6, 7}));
    }
  }
  {
    const std::vector<std::pair<Tensor, int>> batches{{counting(4), 7}};
    auto range = prefetch(batches, devices);
    static_assert(
        std::is_same_v<decltype(range)::Placed, std::pair<Scattered<Tensor>, Scattered<int>>>);
    for (const auto& [parts, constants] : range) {
      EXPECT_EQ(values_of(parts[0]), (Values{0, 1, 2, 3}));
      EXPECT_EQ(constants.parts(), (std::vector<int>{7, 7}));
    }
  }
  {
    const std::vector<std::array<Tensor, 2>> batches{{counting(2), counting(2, 1)}};
    auto range = prefetch(batches, devices);
    static_assert(
        std::is_same_v<decltype(range)::Placed, std::tuple<Scattered<Tensor>, Scattered<Tensor>>>);
    for (const auto& [a, b] : range) {
      EXPECT_EQ(values_of(a[1]), (Values{2, 3}));
      EXPECT_EQ(values_of(b[1]), (Values{1}));
    }
  }
  {
    const std::vector<Sample> batches{{counting(4), {{"coarse", counting(4, 1)}}, 3}};
    auto range = prefetch(batches, devices);
    static_assert(std::is_same_v<decltype(range)::Placed, Scattered<Sample>>);
    for (const Scattered<Sample>& parts : range) {
      EXPECT_EQ(values_of(parts[1].image), (Values{4, 5, 6, 7}));
      EXPECT_EQ(values_of(parts[1].labels.at("coarse")), (Values{2, 3}));
      EXPECT_EQ(parts[1].tag, 3);
    }
  }
}

TEST(Prefetch, FewRowsMakeFewParts) {
  const std::vector<Tensor> batches{counting(2), counting(8), counting(0), counting(1)};
  std::vector<std::size_t> parts;
  for (const auto& batch : prefetch(batches, first_devices(4))) parts.push_back(batch.size());
  EXPECT_EQ(parts, (std::vector<std::size_t>{2, 4, 4, 1}));
}

TEST(Prefetch, BatchesMayVaryInShapeAndHaveNoDimensions) {
  std::vector<Pair> batches;
  for (std::int64_t i = 1; i < 20; ++i) {
    batches.emplace_back(counting(i, 1 + i % 3, float(i)), full({}, double(i)));
  }
  for (const std::int64_t depth : {1, 2, 3, 4}) {
    std::size_t number = 0;
    for (auto [rows, scalars] : prefetch(batches, first_devices(3), {.depth = depth})) {
      Values values;
      for (const Tensor& part : rows) {
        for (const float value : values_of(part)) values.push_back(value);
      }
      EXPECT_EQ(values, values_of(std::get<0>(batches[number])));
      for (std::size_t i = 0; i < rows.size(); ++i) {
        EXPECT_EQ(scalars[i].device(), rows[i].device());
        EXPECT_EQ(scalars[i].item(), double(number + 1));
      }
      ++number;
    }
    EXPECT_EQ(number, batches.size());
  }
}

TEST(Prefetch, DividesAsItIsTold) {
  const std::vector<Tensor> batches{counting(3, 4)};
  for (const auto& parts :
       prefetch(batches, first_devices(2), {.dim = 1, .split = Split::weights({3, 1})})) {
    EXPECT_EQ(parts[0].sizes(), (Shape{3, 3}));
    EXPECT_EQ(values_of(parts[1]), (Values{3, 7, 11}));
  }
  auto source = pairs(1);
  for (const auto& [images, labels] :
       prefetch(source, first_devices(2), {.split = Split::weights({2, 1})})) {
    EXPECT_EQ(images[0].sizes(), (Shape{4, 2}));
    EXPECT_EQ(labels[1].sizes(), Shape{2});
  }
}

TEST(Prefetch, AnEmptyLoaderHasNoBatches) {
  auto source = pairs(0);
  for (const auto& batch : prefetch(source, first_devices(2))) {
    ADD_FAILURE() << std::get<0>(batch).size();
  }
}

TEST(Prefetch, ATemporaryIsTakenOver) {
  const TensorDataset numbers{counting(5)};
  std::vector<std::int64_t> rows;
  for (auto [batch] : prefetch(DataLoader(numbers, {.batch_size = 2}), kFirst)) {
    rows.push_back(batch.size(0));
  }
  EXPECT_EQ(rows, (std::vector<std::int64_t>{2, 2, 1}));
}

// A loader whose iterator makes its batch each time that it is asked for it, as those of views do.
struct MadeWhenAsked {
  struct Iterator {
    std::vector<int>* made;
    int i;

    Tensor operator*() const {
      ++(*made)[static_cast<std::size_t>(i)];
      return full({6, 2}, i);
    }
    Iterator& operator++() {
      ++i;
      return *this;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.i == b.i; }
  };

  Iterator begin() const { return {made, 0}; }
  Iterator end() const { return {made, static_cast<int>(made->size())}; }

  std::vector<int>* made;  // how often each of them was
};

TEST(Prefetch, ABatchThatIsMadeWhenItIsAskedForIsMadeOnce) {
  std::vector<int> made(4);
  float i = 0;
  for (const Scattered<Tensor>& parts : prefetch(MadeWhenAsked{&made}, {kFirst, kSecond})) {
    EXPECT_EQ(values_of(parts[1]), Values(6, i++));
  }
  EXPECT_EQ(made, std::vector<int>(4, 1));
}

TEST(Prefetch, AnIteratorThatHasBeenMovedFromIsAtTheEnd) {
  auto batches = prefetch(std::vector<Tensor>{counting(2), counting(2)}, kFirst);
  auto from = batches.begin();
  auto batch = std::move(from);
  EXPECT_TRUE(from == batches.end());
  ++from;
  EXPECT_TRUE(from == batches.end());
  ++batch;
  EXPECT_EQ(values_of(*batch).size(), 4U);
}

TEST(Prefetch, EachPassIsAnEpochOfTheLoader) {
  const TensorDataset numbers{counting(50, 1)};
  const DataLoaderOptions options{.batch_size = 7, .shuffle = true, .seed = 3};
  DataLoader loader{numbers, options};
  DataLoader plain{numbers, options};
  auto range = prefetch(loader, first_devices(2));
  EXPECT_EQ(range.size(), 8);
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(loader.epoch(), epoch);
    std::vector<Values> expected;
    for (auto [batch] : plain) expected.push_back(values_of(batch));
    std::vector<Values> got;
    for (auto [parts] : range) {
      Values together;
      for (const Tensor& part : parts) {
        for (const float value : values_of(part)) together.push_back(value);
      }
      got.push_back(together);
    }
    EXPECT_EQ(got, expected);
  }
}

// A sampler of its own order for each epoch that there is, which does not tell how many it draws.
struct PlannedSampler {
  std::vector<std::vector<std::int64_t>> epochs;

  std::vector<std::int64_t> indices(std::int64_t /*size*/, std::uint64_t epoch) const {
    return epochs.at(epoch);
  }
};

TEST(Prefetch, ASamplerIsAskedForNoEpochAfterThatOfThePass) {
  for (const std::int64_t workers : {0, 2}) {
    DataLoader loader{
        TensorDataset{counting(4, 1)}, PlannedSampler{{{3}, {2, 0, 1}}}, {.num_workers = workers}};
    for (const Values& expected : {Values{3}, Values{2, 0, 1}}) {
      Values seen;
      for (const auto& [row] : prefetch(loader, kFirst)) seen.push_back(values_of(row)[0]);
      EXPECT_EQ(seen, expected);
    }
  }
}

TEST(Prefetch, ADatasetShorterThanABatchAndAnEmptyOneWithAnyWorkers) {
  for (const std::int64_t workers : {0, 1, 2, 4, 7}) {
    for (const std::int64_t depth : {1, 2, 3, 4}) {
      for (const std::int64_t rows : {0, 1, 3, 25}) {
        DataLoader loader{TensorDataset{counting(rows)}, {.batch_size = 4, .num_workers = workers}};
        Values all;
        for (auto [parts] : prefetch(loader, first_devices(2), {.depth = depth})) {
          for (const Tensor& part : parts) {
            for (const float value : values_of(part)) all.push_back(value);
          }
        }
        EXPECT_EQ(all, values_of(counting(rows)));
      }
    }
  }
}

TEST(Prefetch, AnyNumberOfWorkersMayBeAskedFor) {
  DataLoader loader{TensorDataset{counting(6)},
                    {.batch_size = 2, .num_workers = INT64_MAX, .prefetch_factor = INT64_MAX}};
  std::int64_t rows = 0;
  for (auto [batch] : prefetch(loader, kFirst)) rows += batch.size(0);
  EXPECT_EQ(rows, 6);
}

TEST(Prefetch, BadArgumentsAreErrorsAtOnce) {
  auto source = pairs(2);
  EXPECT_TRUE(throws<ValueError>([&] { (void)prefetch(source, kFirst, {.depth = 0}); },
                                 "depth of at least 1, got 0"));
  EXPECT_TRUE(throws<ValueError>([&] { (void)prefetch(source, std::vector<Device>()); },
                                 "at least one device"));
  EXPECT_TRUE(throws<DeviceError>([&] { (void)prefetch(source, "cpu:99"); }, "cpu:99"));
  EXPECT_TRUE(throws<DeviceError>(
      [&] { (void)prefetch(source, first_devices(2), whole<1>("cpu:99")); }, "cpu:99"));
  EXPECT_EQ(source.loaded(), 0);
}

struct Net {
  nn::Linear layer{2, 3};
  Tensor forward(const Tensor& x) { return layer(x); }
};

// The same loss and gradient whoever divides the batch.
TEST(Prefetch, ModelsAndCriteriaTakeTheParts) {
  const Tensor inputs = counting(14, 2, -5);
  const Tensor targets = from_values<std::int64_t>(
      std::vector<std::int64_t>{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1}, {14});
  for (const std::size_t count : {1U, 2U, 4U}) {
    const std::vector<Device> devices = first_devices(count);
    DataLoader loader{TensorDataset{inputs, targets}, {.batch_size = 5}};
    DataParallelModel model{Net{}, devices};
    DataParallelCriterion criterion{nn::CrossEntropy{}};

    std::vector<double> expected;
    for (auto [x, y] : loader) expected.push_back(criterion(model(x), y).item());
    std::vector<double> got;
    for (auto [x, y] : prefetch(loader, model.devices())) {
      const Tensor loss = criterion(model(x), y);
      loss.backward();
      got.push_back(loss.item());
    }
    EXPECT_EQ(got, expected);
    EXPECT_TRUE(model.parameters()[0].grad().defined());

    DataParallel gathering{Net{model.module()}, devices};
    std::size_t number = 0;
    for (auto [x, y] : prefetch(loader, devices, whole<1>(gathering.output_device()))) {
      const double loss = cross_entropy(gathering(x), y).item();
      EXPECT_NEAR(loss, expected[number++], 1e-6);
    }
    EXPECT_EQ(number, expected.size());
  }
}

// The thread that makes them exists in the parent only: an Error, not a wait for ever.
TEST(Prefetch, AForkedChildGetsNoFurtherBatches) {
  BatchSource<Pair> source = pairs(20);
  auto batches = prefetch(source, first_devices(2));
  auto iterator = batches.begin();
  EXPECT_TRUE(testing::refused_when_forked([&] {
    for (int i = 0; i < 20; ++i) ++iterator;
  }));
}

TEST(Prefetch, NothingIsRecordedForBackward) {
  const std::vector<Tensor> batches{counting(4).requires_grad_()};
  for (const auto& parts : prefetch(batches, first_devices(2))) {
    EXPECT_FALSE(parts[0].requires_grad());
  }
}

// A loader computes as it would without prefetch; but what it makes may be trained on later.
TEST(Prefetch, TheThreadHasTheStateOfTheOneThatBeganThePass) {
  const AutocastGuard autocast(Dtype::f16);
  const InferenceModeGuard inference;
  const BatchSource<Tensor> source(2, [](std::int64_t) {
    EXPECT_TRUE(is_autocast_enabled());
    EXPECT_EQ(autocast_dtype(), Dtype::f16);
    return counting(2);
  });
  for (const Tensor& batch : prefetch(source, kFirst)) EXPECT_FALSE(batch.is_inference());
}

// With batches on their way, in a loop and in what lives as long as the process.
TEST(PrefetchDeathTest, TheProgramMayEndWithinTheLoop) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto in_a_loop = [] {
    DataLoader loader{TensorDataset{counting(4000)}, {.batch_size = 8}};
    for (const auto& parts : prefetch(loader, first_devices(3)))
      std::exit(std::get<0>(parts).size() > 0 ? 0 : 1);
  };
  const auto with_static_ones = [] {
    static DataLoader loader{TensorDataset{counting(4000)}, {.batch_size = 8, .num_workers = 2}};
    static auto batches = prefetch(loader, first_devices(2));
    static auto iterator = batches.begin();
    ++iterator;
    std::exit(0);
  };
  EXPECT_EXIT(in_a_loop(), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(with_static_ones(), ::testing::ExitedWithCode(0), "");
}

}  // namespace prefetch_test
}  // namespace lockstep::data
