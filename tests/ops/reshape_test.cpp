// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/reshape.hpp>

#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/tensor/random.hpp>

#include "support/expect_error.hpp"
#include "support/gradcheck.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace lockstep {
namespace reshape_test {

using testing::expect_error;
using testing::gradcheck;
using testing::gradgradcheck;
using Integers = std::vector<std::int64_t>;

bool share_memory(const Tensor& a, const Tensor& b) {
  return a.impl()->storage == b.impl()->storage && a.impl()->version == b.impl()->version;
}

TEST(Reshape, IsAViewOfTheSameMemory) {
  const Tensor x = arange(6);
  const Tensor y = x.reshape({2, 3});
  EXPECT_TRUE(share_memory(x, y));
  EXPECT_EQ(y.sizes(), (Shape{2, 3}));
  y.mutable_data_ptr<std::int64_t>()[4] = 40;
  EXPECT_EQ(x.to_vector<std::int64_t>(), (Integers{0, 1, 2, 3, 40, 5}));
  EXPECT_EQ(x.version(), y.version());
}

TEST(Reshape, InfersOneSize) {
  const Tensor x = zeros({2, 6});
  EXPECT_EQ(x.reshape({-1}).sizes(), (Shape{12}));
  EXPECT_EQ(x.reshape({3, -1}).sizes(), (Shape{3, 4}));
  EXPECT_EQ(x.reshape({-1, 12, 1}).sizes(), (Shape{1, 12, 1}));
  EXPECT_EQ(zeros({0, 4}).reshape({-1, 2}).sizes(), (Shape{0, 2}));
  EXPECT_EQ(zeros({1}).reshape({}).sizes(), Shape{});
  EXPECT_THROW((void)x.reshape({-1, -1}), ShapeError);
  EXPECT_THROW((void)x.reshape({5, -1}), ShapeError);
  EXPECT_THROW((void)x.reshape({5}), ShapeError);
  EXPECT_THROW((void)x.reshape({-2, 6}), ShapeError);
  EXPECT_THROW((void)zeros({0}).reshape({0, -1}), ShapeError);
}

TEST(Reshape, StaysAViewWhereTheStridesAllowIt) {
  const Tensor x = arange(24).reshape({2, 3, 4}).transpose(0, 1);  // [3, 2, 4]
  const Tensor split_up = x.reshape({3, 1, 2, 2, 2});
  EXPECT_TRUE(share_memory(x, split_up));
  EXPECT_EQ(split_up.to_vector<std::int64_t>(), x.to_vector<std::int64_t>());
  const Tensor joined = x.reshape({6, 4});
  EXPECT_FALSE(share_memory(x, joined));
  EXPECT_EQ(joined.to_vector<std::int64_t>(), x.to_vector<std::int64_t>());
  const Tensor one = x.narrow(2, 1, 1).reshape({3, 2});
  EXPECT_TRUE(share_memory(x, one));
  EXPECT_EQ(one.to_vector<std::int64_t>(), (Integers{1, 13, 5, 17, 9, 21}));
  const Tensor back = one.reshape({1, 3, 1, 2, 1});
  EXPECT_TRUE(share_memory(x, back));
  EXPECT_EQ(back.to_vector<std::int64_t>(), one.to_vector<std::int64_t>());
  EXPECT_EQ(expand(zeros({1}), {4}).reshape({2, 2}).sizes(), (Shape{2, 2}));
}

TEST(Reshape, FlattenJoinsDimensions) {
  const Tensor x = zeros({2, 3, 4, 5});
  EXPECT_EQ(x.flatten().sizes(), (Shape{120}));
  EXPECT_EQ(x.flatten(1).sizes(), (Shape{2, 60}));
  EXPECT_EQ(flatten(x, 1, 2).sizes(), (Shape{2, 12, 5}));
  EXPECT_EQ(flatten(x, -2).sizes(), (Shape{2, 3, 20}));
  EXPECT_EQ(flatten(x, 3, 3).sizes(), (Shape{2, 3, 4, 5}));
  EXPECT_EQ(scalar_tensor(1.0F).flatten().sizes(), (Shape{1}));
  EXPECT_EQ(flatten(zeros({0, 3, 2}), 1).sizes(), (Shape{0, 6}));
  EXPECT_THROW((void)flatten(x, 2, 1), ValueError);
  EXPECT_THROW((void)flatten(x, 4), IndexError);
  EXPECT_THROW((void)scalar_tensor(1.0F).flatten(1), IndexError);
  EXPECT_THROW((void)scalar_tensor(1.0F).flatten(0, -2), IndexError);
  constexpr std::int64_t kLarge = std::int64_t{1} << 62;
  EXPECT_EQ(flatten(zeros({0, kLarge, 1}), 1).sizes(), (Shape{0, kLarge}));
  EXPECT_EQ(reshape(zeros({0, kLarge}), {kLarge, -1}).sizes(), (Shape{kLarge, 0}));
  EXPECT_EQ(reshape(zeros({0, kLarge}), {kLarge, 4, -1}).sizes(), (Shape{kLarge, 4, 0}));
  expect_error<ShapeError>(
      [] {
        (void)flatten(zeros({0, kLarge, 4}), 1);
      },
      {"flatten", "1 to -1", "[0, 4611686018427387904, 4]"});
  expect_error<ShapeError>(
      [] {
        (void)reshape(zeros({4}), {kLarge, 4});
      },
      {"reshape: shape [4611686018427387904, 4] is invalid"});
}

TEST(Reshape, SqueezeAndUnsqueeze) {
  const Tensor x = zeros({1, 3, 1});
  EXPECT_EQ(squeeze(x).sizes(), (Shape{3}));
  EXPECT_EQ(squeeze(x, 0).sizes(), (Shape{3, 1}));
  EXPECT_EQ(squeeze(x, -1).sizes(), (Shape{1, 3}));
  EXPECT_EQ(squeeze(x, 1).sizes(), (Shape{1, 3, 1}));
  EXPECT_EQ(unsqueeze(x, 0).sizes(), (Shape{1, 1, 3, 1}));
  EXPECT_EQ(unsqueeze(x, -1).sizes(), (Shape{1, 3, 1, 1}));
  EXPECT_EQ(unsqueeze(scalar_tensor(1.0F), 0).sizes(), (Shape{1}));
  EXPECT_THROW((void)unsqueeze(x, 4), IndexError);
  EXPECT_THROW((void)squeeze(x, 3), IndexError);
}

TEST(Reshape, ContiguousCopiesOnlyWhatIsNot) {
  const Tensor x = arange(6).reshape({2, 3});
  EXPECT_TRUE(x.contiguous().is_same(x));
  const Tensor y = x.t().contiguous();
  EXPECT_TRUE(y.is_contiguous());
  EXPECT_FALSE(share_memory(x, y));
  EXPECT_EQ(y.to_vector<std::int64_t>(), (Integers{0, 3, 1, 4, 2, 5}));
}

TEST(Reshape, GradientsAgreeWithFiniteDifferences) {
  const TensorOptions leaf{.dtype = Dtype::f64, .device = {}, .requires_grad = true};
  const auto all = [](const Tensor& x) {
    const Tensor y = x * x;
    return std::vector<Tensor>{
        y.reshape({-1}),     y.t().reshape({3, 2, 1}),      y.t().contiguous(),
        unsqueeze(y.t(), 1), squeeze(y.reshape({1, 6, 1})), y.flatten()};
  };
  const std::vector<Tensor> x = {rand({2, 3}, leaf, 1, 2)};
  EXPECT_TRUE(gradcheck(all, x));
  EXPECT_TRUE(gradgradcheck(all, x));
}

}  // namespace reshape_test
}  // namespace lockstep
