// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/where.hpp>

#include <lockstep/ops/compare.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "support/gradcheck.hpp"
#include "support/varied.hpp"

namespace lockstep {
namespace where_test {

using testing::expect_error;
using testing::gradcheck;
using testing::gradgradcheck;
using testing::varied;
using testing::varied_leaf;

TEST(Where, TakesFromTheOneOrTheOther) {
  const Tensor condition = tensor<bool>({true, false, true});
  const Tensor a = tensor({1.0F, 2.0F, 3.0F});
  const Tensor b = tensor({-1.0F, -2.0F, std::nanf("")});
  EXPECT_EQ(where(condition, a, b).to_vector<float>(), (std::vector<float>{1, -2, 3}));
  EXPECT_EQ(where(condition, a, 0.5).to_vector<float>(), (std::vector<float>{1, 0.5, 3}));
  EXPECT_EQ(where(condition, 0.5, a).to_vector<float>(), (std::vector<float>{0.5, 2, 0.5}));
  EXPECT_EQ(where(zeros({0}, Dtype::boolean), zeros({0}), zeros({0})).sizes(), Shape{0});
}

TEST(Where, TakesEveryDtype) {
  const Tensor condition = tensor<bool>({true, false});
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16, Dtype::i64, Dtype::i32,
                            Dtype::u8, Dtype::boolean}) {
    const Tensor result = where(condition, ones({2}, dtype), zeros({2}, dtype));
    EXPECT_EQ(result.dtype(), dtype);
    EXPECT_EQ(result.to(Dtype::f32).to_vector<float>(), (std::vector<float>{1, 0})) << dtype;
  }
}

// Every pattern of kept and stretched dimensions of the three, and transposed ones, against a loop.
TEST(Where, StretchesAnyPatternOfDimensions) {
  const std::int64_t sizes[] = {2, 3};
  for (unsigned pattern = 0; pattern < 64; ++pattern) {
    Shape shapes[3];
    for (unsigned operand = 0; operand < 3; ++operand) {
      for (unsigned d = 0; d < 2; ++d) {
        shapes[operand].push_back((pattern >> (2 * operand + d) & 1U) != 0 ? 1 : sizes[d]);
      }
    }
    const Tensor condition = gt(varied(shapes[0], 5), 0);
    const Tensor a = varied(shapes[1], 1).t().contiguous().t();
    const Tensor b = varied(shapes[2], 2);
    const Tensor result = where(condition, a, b);
    const auto at = [](const Tensor& x, std::int64_t i, std::int64_t j) {
      return select(select(x, 0, x.size(0) == 1 ? 0 : i), 0, x.size(1) == 1 ? 0 : j).item();
    };
    for (std::int64_t i = 0; i < result.size(0); ++i) {
      for (std::int64_t j = 0; j < result.size(1); ++j) {
        EXPECT_EQ(at(result, i, j), at(condition, i, j) != 0 ? at(a, i, j) : at(b, i, j))
            << shapes[0] << shapes[1] << shapes[2];
      }
    }
  }
}

TEST(Where, HasFirstAndSecondDerivatives) {
  const Tensor condition = gt(varied({2, 3}, 3), 0);
  const auto squares = [&](const Tensor& a, const Tensor& b) {
    return where(condition, a * a, b * b);
  };
  EXPECT_TRUE(gradcheck(squares, {varied_leaf({2, 3}), varied_leaf({2, 3}, 1)}));
  EXPECT_TRUE(gradgradcheck(squares, {varied_leaf({2, 3}), varied_leaf({2, 3}, 1)}));
  EXPECT_TRUE(gradcheck(squares, {varied_leaf({3}), varied_leaf({2, 1}, 1)}));
  EXPECT_TRUE(gradgradcheck(squares, {varied_leaf({4, 1, 3}), varied_leaf({}, 1)}));
  const auto numbers = [&](const Tensor& x) {
    return std::vector<Tensor>{where(condition, x, 2), where(condition, 2, x)};
  };
  EXPECT_TRUE(gradcheck(numbers, {varied_leaf({2, 3})}));
}

// The gradient of what is not taken is 0, and not 0 times infinity.
TEST(Where, WhatIsNotTakenGetsNoGradient) {
  const Tensor x = tensor({0.0F, 4.0F}).requires_grad_();
  const Tensor y = where(gt(x, 0), x, 0);
  y.backward(tensor({INFINITY, 1.0F}));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 1}));
}

TEST(Where, NamesWhatDoesNotFit) {
  const Tensor x = varied({2, 3});
  const Tensor condition = gt(x, 0);
  expect_error<DtypeError>([&] { where(x, x, x); }, {"where", "bool", "f64"});
  expect_error<DtypeError>([&] { where(condition, x, varied<float>({2, 3})); }, {"f64", "f32"});
  expect_error<DtypeError>([&] { where(condition, arange(3).to("cpu:0"), 0.5); }, {"0.5", "i64"});
  expect_error<ShapeError>([&] { where(condition, x, varied({2, 4})); }, {"[2, 3]", "[2, 4]"});
  expect_error<ShapeError>([&] { where(gt(varied({4}), 0), x, x); }, {"[2, 3]", "[4]"});
  expect_error<DeviceError>([&] { where(condition, x.to("cpu:1"), x.to("cpu:1")); },
                            {"the condition", "cpu:0", "cpu:1"});
  expect_error<ValueError>([&] { where(condition, x, Tensor()); }, {"where", "undefined"});
}

}  // namespace where_test
}  // namespace lockstep
