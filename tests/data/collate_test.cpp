// SPDX-License-Identifier: Apache-2.0
#include <lockstep/data/collate.hpp>

#include "data/files.hpp"
#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace collate_test {

struct Point {
  float x = 0;
};

}  // namespace collate_test

// A user's own sample type.
template <>
struct lockstep::data::Collate<collate_test::Point> {
  static float apply(const std::vector<collate_test::Point>& samples) {
    float sum = 0;
    for (const collate_test::Point& sample : samples) sum += sample.x;
    return sum;
  }
};

namespace collate_test {

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

TEST(Collate, ANumberThatI64CannotHoldIsAnError) {
  enum class Wide : std::uint64_t { small = 3, large = UINT64_MAX };
  EXPECT_TRUE(lockstep::testing::throws<lockstep::ValueError>(
      [] {
        collate(std::vector<std::pair<int, std::uint64_t>>{{-1, 2}, {-1, std::uint64_t{1} << 63}});
      },
      "collate: batch[1] is 9223372036854775808 in sample 1 of the batch, more than i64"));
  EXPECT_THROW(collate(std::vector{Wide::small, Wide::large}), lockstep::ValueError);
  EXPECT_EQ(values_of<std::int64_t>(collate(std::vector<std::uint64_t>{INT64_MAX})),
            std::vector<std::int64_t>{INT64_MAX});
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

enum class Colour { red = 3, green = 7 };

struct Pair {
  Tensor left;
  std::optional<Tensor> right;
};
struct Labelled {
  Pair images;
  int label = 0;
  std::string name;
};

TEST(Collate, KeepsTheStructureOfSamples) {
  using Sample =
      std::tuple<std::vector<Tensor>, std::map<std::string, int>, std::unordered_map<int, Tensor>,
                 std::optional<double>, std::variant<int, Tensor>, std::vector<bool>, Colour>;
  const auto one = [](float value) { return lockstep::tensor({value}); };
  const std::vector<Sample> samples{
      {{one(1), one(2)}, {{"a", 1}, {"b", 2}}, {{7, one(5)}}, 0.5, one(8), {true}, Colour::red},
      {{one(3), one(4)}, {{"a", 3}, {"b", 4}}, {{7, one(6)}}, 1.5, one(9), {false}, Colour::green},
  };
  const auto [list, map, hashed, optional, variant, flags, colours] = collate(samples);
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(values_of<float>(list[1]), (std::vector<float>{2, 4}));
  EXPECT_EQ(values_of<std::int64_t>(map.at("b")), (std::vector<std::int64_t>{2, 4}));
  EXPECT_EQ(values_of<float>(hashed.at(7)), (std::vector<float>{5, 6}));
  EXPECT_EQ(values_of<double>(*optional), (std::vector<double>{0.5, 1.5}));
  EXPECT_EQ(values_of<float>(std::get<1>(variant)), (std::vector<float>{8, 9}));
  EXPECT_EQ(values_of<std::int64_t>(flags[0]), (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(values_of<std::int64_t>(colours), (std::vector<std::int64_t>{3, 7}));
}

struct FromTheLast {
  std::map<std::string, Tensor, std::greater<>> parts;
};

TEST(Collate, MapsKeepTheirOrder) {
  const FromTheLast sample{{{"a", lockstep::tensor({1.0F})}, {"b", lockstep::tensor({2.0F})}}};
  const FromTheLast batch = collate(std::vector{sample, sample});  // and so the struct stays one
  EXPECT_EQ(batch.parts.begin()->first, "b");
  using Ordered = std::map<int, int, bool (*)(int, int)>;
  const Ordered ordered({{1, 5}, {2, 6}}, [](int a, int b) { return a > b; });
  const auto numbers = collate(std::vector{ordered, ordered});
  EXPECT_EQ(numbers.begin()->first, 2);
  EXPECT_EQ(values_of<std::int64_t>(numbers.at(1)), (std::vector<std::int64_t>{5, 5}));
}

TEST(Collate, NothingStaysNothing) {
  using Sample = std::pair<std::optional<Tensor>, Tensor>;
  const auto [optional, undefined] = collate(std::vector<Sample>(3));
  EXPECT_FALSE(optional.has_value());
  EXPECT_FALSE(undefined.defined());
}

struct Images {
  Pair images;
  Tensor labels;
};
struct Image {
  Pair image;
  std::int64_t label = 0;
  using Batch = Images;
};

TEST(Collate, AStructCanNameItsBatch) {
  const auto one = [](float value) { return lockstep::tensor({value}); };
  const Images batch = collate(std::vector<Image>{{{one(1), one(2)}, 5}, {{one(3), one(4)}, 6}});
  EXPECT_EQ(values_of<float>(batch.images.left), (std::vector<float>{1, 3}));
  EXPECT_EQ(values_of<float>(*batch.images.right), (std::vector<float>{2, 4}));
  EXPECT_EQ(values_of<std::int64_t>(batch.labels), (std::vector<std::int64_t>{5, 6}));

  const auto nested = collate(std::vector<std::pair<Image, int>>{{{{one(1), {}}, 5}, 7}});
  static_assert(std::is_same_v<decltype(nested.first), Images>);
  EXPECT_EQ(values_of<std::int64_t>(nested.first.labels), std::vector<std::int64_t>{5});
}

TEST(Collate, AStructStaysOneIfItsMembersKeepTheirTypes) {
  const auto one = [](float value) { return lockstep::tensor({value}); };
  const Pair pair = collate(std::vector<Pair>{{one(1), one(2)}, {one(3), one(4)}});
  EXPECT_EQ(values_of<float>(pair.left), (std::vector<float>{1, 3}));
  EXPECT_EQ(values_of<float>(*pair.right), (std::vector<float>{2, 4}));

  const auto [images, labels, names] =
      collate(std::vector<Labelled>{{{one(1), {}}, 5, "x"}, {{one(3), {}}, 6, "y"}});
  static_assert(std::is_same_v<decltype(images), const Pair>);
  EXPECT_EQ(values_of<float>(images.left), (std::vector<float>{1, 3}));
  EXPECT_FALSE(images.right.has_value());
  EXPECT_EQ(values_of<std::int64_t>(labels), (std::vector<std::int64_t>{5, 6}));
  EXPECT_EQ(names, (std::vector<std::string>{"x", "y"}));
}

TEST(Collate, SamplesThatDifferInStructureAreErrorsThatNameThePlace) {
  using lockstep::ValueError;
  using lockstep::testing::throws;
  const auto one = [](float value) { return lockstep::tensor({value}); };
  const auto fails = [](auto samples, const char* message) {
    return throws<ValueError>([&] { collate(samples); }, message);
  };
  EXPECT_TRUE(fails(std::vector<std::pair<int, std::vector<int>>>{{1, {2}}, {1, {2}}, {1, {2, 3}}},
                    "batch[1]: the number of elements is 1 in sample 0 of the batch, but 2 in "
                    "sample 2"));
  using Map = std::map<std::string, int>;
  EXPECT_TRUE(fails(std::vector<Map>{{{"a", 1}}, {{"b", 1}}},
                    "batch has the key a in sample 0 of the batch, but not in sample 1"));
  EXPECT_TRUE(fails(std::vector<Map>{{{"a", 1}}, {}}, "batch: the number of keys is 1"));
  EXPECT_TRUE(fails(std::vector<Pair>{{one(1), one(2)}, {one(3), {}}},
                    "batch.right: whether there is a value is true in sample 0 of the batch, but "
                    "false in sample 1"));
  EXPECT_TRUE(fails(std::vector<std::variant<int, double>>{1, 2.0},
                    "batch: the alternative that it holds is 0 in sample 0"));
  EXPECT_TRUE(fails(std::vector<std::map<std::string, Pair>>{{{"k", {one(1), {}}}}, {{"k", {}}}},
                    "batch.k.left is a tensor in one of sample 0 of the batch and sample 1"));
  EXPECT_TRUE(throws<lockstep::ShapeError>(
      [&] {
        collate(std::vector<std::array<Tensor, 2>>{{one(1), one(1)},
                                                   {one(1), lockstep::tensor({1.0F, 2.0F})}});
      },
      "collate: batch[1]: sample 0 of the batch has shape [1], but sample 1 has [2]"));
}

TEST(Collate, CanBeSpecialised) { EXPECT_EQ(collate(std::vector<Point>{{1}, {2}}), 3.0F); }

TEST(Collate, NoSamplesAreAnError) {
  EXPECT_THROW(collate(std::vector<Tensor>{}), lockstep::ValueError);
}

}  // namespace collate_test
