// SPDX-License-Identifier: Apache-2.0
#include <lockstep/data/dataset.hpp>

#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include "data/files.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace dataset_test {

using lockstep::arange;
using lockstep::Device;
using lockstep::Dtype;
using lockstep::IndexError;
using lockstep::Shape;
using lockstep::ShapeError;
using lockstep::Tensor;
using lockstep::zeros;
using lockstep::data::BatchDataset;
using lockstep::data::Dataset;
using lockstep::data::SampleDataset;
using lockstep::data::TensorDataset;
using lockstep::testing::contains;
using lockstep::testing::message_of;
using lockstep::testing::values_of;

struct Squares {
  std::int64_t size() const { return 5; }
  std::int64_t get(std::int64_t i) const { return i * i; }
};
static_assert(SampleDataset<Squares> && !BatchDataset<Squares> && Dataset<Squares>);
static_assert(SampleDataset<TensorDataset<2>> && BatchDataset<TensorDataset<2>>);
static_assert(!Dataset<std::vector<int>>);

Tensor rows_of_two(std::int64_t rows, Device device = {}) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < 2 * rows; ++i) values.push_back(static_cast<float>(i));
  return lockstep::from_values(values, {rows, 2}, device);
}

TEST(TensorDataset, GivesRows) {
  const TensorDataset dataset{rows_of_two(4), arange(4)};
  EXPECT_EQ(dataset.size(), 4);
  const auto [row, number] = dataset.get(3);
  EXPECT_EQ(row.sizes(), Shape{2});
  EXPECT_EQ(number.sizes(), Shape{});
  EXPECT_EQ(values_of<float>(row), (std::vector<float>{6, 7}));
  EXPECT_EQ(values_of<std::int64_t>(number), std::vector<std::int64_t>{3});
}

TEST(TensorDataset, GivesBatchesInTheOrderAskedForAndOnItsDevice) {
  for (const char* device : {"cpu", "cpu:1"}) {
    const TensorDataset dataset{rows_of_two(4, device)};
    const std::array<std::int64_t, 3> wanted{3, 0, 3};
    const auto [rows] = dataset.get_batch(wanted);
    EXPECT_EQ(rows.sizes(), (Shape{3, 2}));
    EXPECT_EQ(rows.device(), Device(device));
    EXPECT_EQ(values_of<float>(rows), (std::vector<float>{6, 7, 0, 1, 6, 7}));
  }
}

TEST(TensorDataset, BatchesOfStridedTensors) {
  const Tensor base = rows_of_two(3);
  const Tensor transposed = lockstep::detail::make_view(base, {2, 3}, {1, 2}, 0);
  const std::array<std::int64_t, 2> wanted{1, 0};
  const auto [rows] = TensorDataset{transposed}.get_batch(wanted);
  EXPECT_EQ(values_of<float>(rows), (std::vector<float>{1, 3, 5, 0, 2, 4}));
}

TEST(TensorDataset, SharesItsTensors) {
  const Tensor rows = rows_of_two(2);
  const TensorDataset dataset{rows};
  const TensorDataset copy = dataset;
  rows.mutable_data_ptr<float>()[3] = -1;
  EXPECT_EQ(values_of<float>(copy.get(1)[0]), (std::vector<float>{2, -1}));
}

TEST(TensorDataset, RowsThatDoNotFitNameBothShapes) {
  EXPECT_TRUE(contains(message_of<ShapeError>([] {
                         TensorDataset(zeros({4, 2}), zeros({3}));
                       }),
                       "[4, 2]", "tensor 1 of shape [3]"));
  EXPECT_TRUE(contains(message_of<ShapeError>([] { TensorDataset{zeros({})}; }),
                       "tensor 0 has no dimensions"));
}

TEST(TensorDataset, ASampleThatIsNotThereIsAnError) {
  const TensorDataset dataset{rows_of_two(2)};
  EXPECT_TRUE(contains(message_of<IndexError>([&] { (void)dataset.get(2); }),
                       "sample 2 is out of range: there are 2"));
  const std::array<std::int64_t, 2> wanted{0, -1};
  EXPECT_THROW((void)dataset.get_batch(wanted), IndexError);
}

}  // namespace dataset_test
