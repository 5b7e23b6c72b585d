// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/shape.hpp>

#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/tensor/random.hpp>

#include "support/gradcheck.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <type_traits>
#include <vector>

namespace lockstep {
namespace shape_test {

using Integers = std::vector<std::int64_t>;

TEST(ShapeOps, PermuteAndTranspose) {
  const Tensor x = arange(6).reshape({1, 2, 3});
  EXPECT_EQ(permute(x, {2, 0, 1}).sizes(), (Shape{3, 1, 2}));
  EXPECT_EQ(permute(x, {-1, 0, 1}).to_vector<std::int64_t>(), (Integers{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(x.transpose(1, 2).sizes(), (Shape{1, 3, 2}));
  EXPECT_EQ(transpose(x, -1, 1).to_vector<std::int64_t>(), (Integers{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(x.reshape({2, 3}).t().sizes(), (Shape{3, 2}));
  EXPECT_EQ(t(arange(3)).sizes(), (Shape{3}));
  EXPECT_EQ(transpose(scalar_tensor(1.0F), 0, -1).sizes(), Shape{});
  EXPECT_THROW((void)t(x), ShapeError);
  EXPECT_THROW((void)permute(x, {0, 1}), ShapeError);
  EXPECT_THROW((void)permute(x, {0, 1, 1}), ValueError);
  EXPECT_THROW((void)transpose(x, 0, 3), IndexError);
}

TEST(ShapeOps, NarrowAndSelectAreViews) {
  const Tensor x = arange(12).reshape({3, 4});
  EXPECT_EQ(x.narrow(0, 1, 2).to_vector<std::int64_t>(), (Integers{4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(narrow(x, 1, 1, 2).to_vector<std::int64_t>(), (Integers{1, 2, 5, 6, 9, 10}));
  EXPECT_EQ(narrow(x, -1, -1, 1).to_vector<std::int64_t>(), (Integers{3, 7, 11}));
  EXPECT_EQ(narrow(x, 0, 3, 0).sizes(), (Shape{0, 4}));
  EXPECT_EQ(narrow(x, 0, -3, 1).to_vector<std::int64_t>(), (Integers{0, 1, 2, 3}));
  EXPECT_EQ(select(x, 0, -3).to_vector<std::int64_t>(), (Integers{0, 1, 2, 3}));
  EXPECT_EQ(select(x, 0, 1).to_vector<std::int64_t>(), (Integers{4, 5, 6, 7}));
  EXPECT_EQ(select(x, 1, -1).to_vector<std::int64_t>(), (Integers{3, 7, 11}));
  select(x, 1, 2).copy_(full({3}, -1, {.dtype = Dtype::i64}));
  EXPECT_EQ(x.to_vector<std::int64_t>(), (Integers{0, 1, -1, 3, 4, 5, -1, 7, 8, 9, -1, 11}));
}

TEST(ShapeOps, PartsOutsideAreErrors) {
  const Tensor x = zeros({3, 4});
  EXPECT_THROW((void)narrow(x, 0, 2, 2), IndexError);
  EXPECT_THROW((void)narrow(x, 0, 4, 0), IndexError);
  EXPECT_THROW((void)narrow(x, 0, -4, 1), IndexError);
  EXPECT_THROW((void)narrow(x, 0, 1, -1), ValueError);
  EXPECT_THROW((void)narrow(x, 0, 1, INT64_MAX), IndexError);
  // Where a part of nothing begins, no number may hold.
  constexpr std::int64_t kLarge = std::int64_t{1} << 62;
  const Tensor none = zeros({kLarge, 16, 0});
  EXPECT_EQ(narrow(none, 0, kLarge - 1, 1).clone().sizes(), (Shape{1, 16, 0}));
  EXPECT_EQ(narrow(zeros({0, kLarge, 16}), 1, kLarge, 0).clone().sizes(), (Shape{0, 0, 16}));
  EXPECT_THROW((void)narrow(x, 2, 0, 1), IndexError);
  EXPECT_THROW((void)narrow(scalar_tensor(1.0F), 0, 0, 1), ShapeError);
  EXPECT_THROW((void)select(x, 0, 3), IndexError);
  EXPECT_THROW((void)select(x, 0, -4), IndexError);
}

TEST(ShapeOps, AChangeThroughAViewIsNoticed) {
  const Tensor weight = ones({2}, {.requires_grad = true});
  const Tensor x = ones({4});
  const Tensor y = (weight * x.narrow(0, 0, 2)).sum();
  x.fill_(2);
  EXPECT_THROW(y.backward(), AutogradError);
}

TEST(ShapeOps, GradientsAgreeWithFiniteDifferences) {
  const TensorOptions leaf{.dtype = Dtype::f64, .device = {}, .requires_grad = true};
  const auto all = [](const Tensor& x) {
    const Tensor y = x * x;
    return std::vector<Tensor>{permute(y, {2, 0, 1}), transpose(y, 0, 2), narrow(y, 1, 1, 2),
                               select(y, 2, 0), narrow(y.transpose(0, 1), 0, 2, 1)};
  };
  const std::vector<Tensor> x = {rand({2, 3, 2}, leaf, 1, 2)};
  EXPECT_TRUE(testing::gradcheck(all, x));
  EXPECT_TRUE(testing::gradgradcheck(all, x));
}

TEST(Members, AreTheFunctionsOfTheirNames) {
  const Tensor x = arange(6, TensorOptions{}).reshape({2, 1, 3});
  const auto expect = [](const Tensor& member, const Tensor& function) {
    EXPECT_EQ(member.sizes(), function.sizes());
    EXPECT_EQ(member.to_vector<float>(), function.to_vector<float>());
  };
  expect(x.permute({2, 0, 1}), permute(x, {2, 0, 1}));
  expect(x.expand({2, 4, -1}), expand(x, {2, 4, -1}));
  expect(x.squeeze(), squeeze(x));
  expect(x.squeeze(1), squeeze(x, 1));
  expect(x.unsqueeze(-1), unsqueeze(x, -1));
  expect(x.select(2, -1), select(x, 2, -1));
  expect(x.sum({0, 2}), sum(x, {0, 2}));
  expect(x.sum({1}, true), sum(x, {1}, true));
  expect(x.mean({0}), mean(x, {0}));
  expect(x.mean({-1}, true), mean(x, {-1}, true));
}

TEST(Members, AnIndexSelectsAlongTheFirstDimension) {
  const Tensor x = arange(6, TensorOptions{}).reshape({2, 3}).requires_grad_();
  EXPECT_EQ(x[1].to_vector<float>(), (std::vector<float>{3, 4, 5}));
  EXPECT_EQ(x[-1][0].item(), 3);
  x[0][2].backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 0, 1, 0, 0, 0}));
  const Tensor plain = zeros({2, 2});
  plain[1].copy_(ones({2}));
  EXPECT_EQ(plain.to_vector<float>(), (std::vector<float>{0, 0, 1, 1}));
  static_assert(!std::is_assignable_v<decltype(x[0]), Tensor>);  // which would change nothing
  EXPECT_THROW((void)x[2], IndexError);
  EXPECT_THROW((void)scalar_tensor(1.0F)[0], ShapeError);
}

}  // namespace shape_test
}  // namespace lockstep
