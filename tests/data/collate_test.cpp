// SPDX-License-Identifier: Apache-2.0
#include <lockstep/data/collate.hpp>

#include "data/files.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace {

struct Point {
  float x = 0;
};

}  // namespace

// A user's own sample type.
template <>
struct lockstep::data::Collate<Point> {
  static float apply(const std::vector<Point>& samples) {
    float sum = 0;
    for (const Point& sample : samples) sum += sample.x;
    return sum;
  }
};

namespace {

using lockstep::Dtype;
using lockstep::Shape;
using lockstep::Tensor;
using lockstep::data::collate;
using lockstep::testing::values_of;

TEST(Collate, StacksTensors) {
  const Tensor batch =
      collate(std::vector{lockstep::tensor({1.0F, 2.0F}), lockstep::tensor({3.0F, 4.0F})});
  EXPECT_EQ(batch.sizes(), (Shape{2, 2}));
  EXPECT_EQ(values_of<float>(batch), (std::vector<float>{1, 2, 3, 4}));
}

TEST(Collate, StacksTensorsWhereTheyAre) {
  const Tensor batch = collate(std::vector{lockstep::tensor({1.0F}, "cpu:1")});
  EXPECT_EQ(batch.device(), lockstep::Device("cpu:1"));
  EXPECT_EQ(batch.sizes(), (Shape{1, 1}));
}

TEST(Collate, MakesVectorsOfNumbers) {
  EXPECT_EQ(values_of<std::int64_t>(collate(std::vector<int>{3, -1})),
            (std::vector<std::int64_t>{3, -1}));
  EXPECT_EQ(values_of<std::int64_t>(collate(std::vector<bool>{true, false})),
            (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(collate(std::vector<float>{1}).dtype(), Dtype::f32);
  EXPECT_EQ(collate(std::vector<double>{1}).dtype(), Dtype::f64);
}

TEST(Collate, WorksElementByElement) {
  using Sample = std::tuple<std::pair<Tensor, int>, std::string, std::array<double, 2>>;
  const std::vector<Sample> samples{
      {{lockstep::tensor({1.0F}), 7}, "a", {0.5, 1.5}},
      {{lockstep::tensor({2.0F}), 8}, "b", {2.5, 3.5}},
  };
  const auto [pair, strings, numbers] = collate(samples);
  EXPECT_EQ(values_of<float>(pair.first), (std::vector<float>{1, 2}));
  EXPECT_EQ(values_of<std::int64_t>(pair.second), (std::vector<std::int64_t>{7, 8}));
  EXPECT_EQ(strings, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(values_of<double>(numbers[1]), (std::vector<double>{1.5, 3.5}));
}

TEST(Collate, CanBeSpecialised) { EXPECT_EQ(collate(std::vector<Point>{{1}, {2}}), 3.0F); }

TEST(Collate, NoSamplesAreAnError) {
  EXPECT_THROW(collate(std::vector<Tensor>{}), lockstep::ValueError);
}

}  // namespace
