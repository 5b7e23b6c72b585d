// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/expand.hpp>

#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/tensor/random.hpp>

#include "support/gradcheck.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep {
namespace expand_test {

TEST(Expand, StretchesWithoutCopying) {
  const Tensor x = tensor({1.0F, 2.0F}).reshape({2, 1});
  const Tensor y = expand(x, {3, 2, 2});
  EXPECT_EQ(y.impl()->storage, x.impl()->storage);
  EXPECT_EQ(y.strides(), (Shape{0, 1, 0}));
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{1, 1, 2, 2, 1, 1, 2, 2, 1, 1, 2, 2}));
  EXPECT_EQ(expand(x, {3, -1, 4}).sizes(), (Shape{3, 2, 4}));
  EXPECT_EQ(expand(x, {0, 2, 1}).numel(), 0);
  EXPECT_EQ(expand(scalar_tensor(1.0F), {2}).sizes(), (Shape{2}));
}

TEST(Expand, ShapesThatDoNotFitAreNamed) {
  try {
    (void)expand(zeros({2, 3}), {2, 4});
    FAIL();
  } catch (const ShapeError& error) {
    EXPECT_EQ(std::string(error.what()),
              "The expanded size of the tensor (4) must match the existing size (3) at "
              "non-singleton dimension 1. Target sizes: [2, 4]. Tensor sizes: [2, 3]");
  }
  EXPECT_THROW((void)expand(zeros({2, 3}), {3}), ShapeError);
  EXPECT_THROW((void)expand(zeros({3}), {-1, 3}), ShapeError);
}

TEST(Expand, GradientsAgreeWithFiniteDifferences) {
  const TensorOptions leaf{.dtype = Dtype::f64, .device = {}, .requires_grad = true};
  const auto stretch = [](const Tensor& x) { return expand(x * x, {4, 2, 3}); };
  const std::vector<Tensor> x = {rand({2, 1}, leaf, 1, 2)};
  EXPECT_TRUE(testing::gradcheck(stretch, x));
  EXPECT_TRUE(testing::gradgradcheck(stretch, x));
}

}  // namespace expand_test
}  // namespace lockstep
