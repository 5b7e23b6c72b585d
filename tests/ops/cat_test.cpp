// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/cat.hpp>

#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/tensor/random.hpp>

#include "support/expect_error.hpp"
#include "support/gradcheck.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {
namespace cat_test {

using Integers = std::vector<std::int64_t>;

TEST(Cat, JoinsAlongADimension) {
  const Tensor a = arange(4).reshape({2, 2});
  const Tensor b = arange(2).reshape({1, 2});
  EXPECT_EQ(cat({a, b}).to_vector<std::int64_t>(), (Integers{0, 1, 2, 3, 0, 1}));
  EXPECT_EQ(cat({a, b.t()}, 1).to_vector<std::int64_t>(), (Integers{0, 1, 0, 2, 3, 1}));
  EXPECT_EQ(cat({a.t(), a}, -1).to_vector<std::int64_t>(), (Integers{0, 2, 0, 1, 1, 3, 2, 3}));
  EXPECT_EQ(cat({a, a.narrow(0, 0, 0)}).sizes(), (Shape{2, 2}));
  EXPECT_EQ(cat({a}).to_vector<std::int64_t>(), a.to_vector<std::int64_t>());
}

TEST(Cat, StackMakesANewDimension) {
  const Tensor a = arange(2);
  EXPECT_EQ(stack({a, a + 10}).to_vector<std::int64_t>(), (Integers{0, 1, 10, 11}));
  EXPECT_EQ(stack({a, a + 10}, 1).to_vector<std::int64_t>(), (Integers{0, 10, 1, 11}));
  EXPECT_EQ(stack({a, a}, -1).sizes(), (Shape{2, 2}));
  EXPECT_EQ(stack({scalar_tensor(1.0F), scalar_tensor(2.0F)}).sizes(), (Shape{2}));
}

TEST(Cat, TensorsThatDoNotFitAreNamed) {
  try {
    (void)cat({zeros({2, 2}), zeros({2, 2}), zeros({3, 2})}, 1);
    FAIL();
  } catch (const ShapeError& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "cat: sizes of tensors must match except in dimension 1. Expected size 2 but got size "
        "3 for tensor number 2 in the list (shape [2, 2] for tensor number 0, [3, 2] for "
        "tensor number 2)");
  }
  EXPECT_THROW((void)cat({}), ValueError);
  EXPECT_THROW((void)cat({zeros({2}), zeros({2, 1})}), ShapeError);
  EXPECT_THROW((void)cat({scalar_tensor(1.0F)}), ShapeError);
  EXPECT_THROW((void)cat({zeros({2})}, 1), IndexError);
  EXPECT_THROW((void)cat({zeros({2}), arange(2)}), DtypeError);
  EXPECT_THROW((void)cat({zeros({2}), zeros({2}, {.device = "cpu:0"})}), DeviceError);
  EXPECT_THROW((void)stack({zeros({2}), zeros({3})}), ShapeError);
  EXPECT_THROW((void)stack({}), ValueError);
  EXPECT_TRUE(testing::throws<DtypeError>(
      [] {
        (void)stack({zeros({2}), arange(2)});
      },
      "stack: ", "tensor number 1", "i64"));
}

TEST(Cat, SizesThatNoNumberHoldsAddedUpAreAnError) {
  const Tensor x = zeros({0, INT64_MAX});
  EXPECT_TRUE(testing::throws<ShapeError>(
      [&] {
        (void)cat({x, x}, 1);
      },
      "cat: ", "dimension 1", "tensor number 1", "[0, 9223372036854775807]"));
  EXPECT_EQ(cat({x, x}).sizes(), x.sizes());
  EXPECT_EQ(stack({x, x}).sizes(), (Shape{2, 0, INT64_MAX}));
}

TEST(Cat, GradientsAgreeWithFiniteDifferences) {
  const TensorOptions leaf{.dtype = Dtype::f64, .device = {}, .requires_grad = true};
  const auto all = [](const Tensor& a, const Tensor& b) {
    return std::vector<Tensor>{cat({a * a, b, a}), cat({a.t(), b.t() * 2}, 1),
                               stack({a, a * b.narrow(0, 0, 1)}, 1)};
  };
  const std::vector<Tensor> x = {rand({2, 3}, leaf, 1, 2), rand({1, 3}, leaf, 1, 2)};
  EXPECT_TRUE(testing::gradcheck(all, x));
  EXPECT_TRUE(testing::gradgradcheck(all, x));
}

TEST(Cat, OnlyWhatRequiresGradGetsOne) {
  const Tensor a = ones({2}, {.requires_grad = true});
  const Tensor b = ones({3});
  cat({b, a * 2, b}).backward(arange(8, {.dtype = Dtype::f32}));
  EXPECT_EQ(a.grad().to_vector<float>(), (std::vector<float>{6, 8}));
  EXPECT_FALSE(b.grad().defined());
}

}  // namespace cat_test
}  // namespace lockstep
