// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/split.hpp>

#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/tensor/random.hpp>

#include "support/gradcheck.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {
namespace split_test {

using Integers = std::vector<std::int64_t>;

Integers lengths(const std::vector<Tensor>& parts, std::int64_t dim) {
  Integers result;
  for (const Tensor& part : parts) result.push_back(part.size(dim));
  return result;
}

TEST(Split, PartsAreViewsOfTheLengthsAsked) {
  const Tensor x = arange(10).reshape({2, 5});
  const std::vector<Tensor> parts = split(x, {1, 0, 4}, 1);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[0].to_vector<std::int64_t>(), (Integers{0, 5}));
  EXPECT_EQ(parts[1].sizes(), (Shape{2, 0}));
  EXPECT_EQ(parts[2].to_vector<std::int64_t>(), (Integers{1, 2, 3, 4, 6, 7, 8, 9}));
  EXPECT_EQ(parts[2].impl()->storage, x.impl()->storage);
  EXPECT_EQ(parts[2].impl()->version, x.impl()->version);
}

TEST(Split, LengthsThatDoNotFillTheDimensionAreErrors) {
  const Tensor x = zeros({4});
  EXPECT_THROW((void)split(x, {1, 2}), ValueError);
  EXPECT_THROW((void)split(x, {3, 2}), ValueError);
  EXPECT_THROW((void)split(x, {-1, 5}), ValueError);
  EXPECT_THROW((void)split(x, {INT64_MAX, INT64_MAX, 6}), ValueError);
  EXPECT_THROW((void)split(x, {}), ValueError);
  const Tensor none = zeros({0}, {.requires_grad = true});
  EXPECT_TRUE(split(none, std::vector<std::int64_t>{}).empty());
  EXPECT_THROW((void)split(scalar_tensor(1.0F), {1}), ShapeError);
}

TEST(Split, ChunksAreTorchs) {
  EXPECT_EQ(lengths(chunk(zeros({16}), 2), 0), (Integers{8, 8}));
  EXPECT_EQ(lengths(chunk(zeros({15}), 2), 0), (Integers{8, 7}));
  EXPECT_EQ(lengths(chunk(zeros({5}), 4), 0), (Integers{2, 2, 1}));
  EXPECT_EQ(lengths(chunk(zeros({3}), 8), 0), (Integers{1, 1, 1}));
  EXPECT_EQ(lengths(chunk(zeros({2, 7}), 3, -1), 1), (Integers{3, 3, 1}));
  EXPECT_EQ(lengths(chunk(zeros({0}), 3), 0), (Integers{0}));
  EXPECT_THROW((void)chunk(zeros({3}), 0), ValueError);
  EXPECT_THROW((void)chunk(scalar_tensor(1.0F), 2), ShapeError);
}

TEST(Split, ChunksOfASizeThatANumberJustHolds) {
  EXPECT_EQ(lengths(chunk(zeros({INT64_MAX, 0}), 3), 0),
            (Integers{INT64_MAX / 3 + 1, INT64_MAX / 3 + 1, INT64_MAX / 3 - 1}));
}

TEST(Split, GradientsAgreeWithFiniteDifferences) {
  const TensorOptions leaf{.dtype = Dtype::f64, .device = {}, .requires_grad = true};
  const auto some = [](const Tensor& x) {
    const std::vector<Tensor> parts = split(x * x, {1, 2, 1}, 1);
    return std::vector<Tensor>{parts[0], parts[2] * parts[0]};
  };
  const std::vector<Tensor> x = {rand({2, 4}, leaf, 1, 2)};
  EXPECT_TRUE(testing::gradcheck(some, x));
  EXPECT_TRUE(testing::gradgradcheck(some, x));
}

TEST(Split, APartThatWasNotUsedCountsAsZeros) {
  const Tensor x = ones({4}, {.requires_grad = true});
  const std::vector<Tensor> parts = chunk(x, 4);
  (parts[1] * 3).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 3, 0, 0}));
}

}  // namespace split_test
}  // namespace lockstep
