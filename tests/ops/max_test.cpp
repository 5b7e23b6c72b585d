// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/max.hpp>

#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "support/expect_error.hpp"
#include "support/gradcheck.hpp"
#include "support/varied.hpp"

namespace lockstep {
namespace max_test {

using testing::expect_error;
using testing::gradcheck;
using testing::gradgradcheck;
using testing::throws;
using testing::varied;
using testing::varied_leaf;

TEST(Maximum, IsTheGreaterOfTwo) {
  const Tensor a = tensor({1.0F, 5.0F, -INFINITY});
  const Tensor b = tensor({2.0F, 4.0F, -3.0F});
  EXPECT_EQ(maximum(a, b).to_vector<float>(), (std::vector<float>{2, 5, -3}));
  EXPECT_EQ(minimum(a, b).to_vector<float>(), (std::vector<float>{1, 4, -INFINITY}));
  EXPECT_EQ(maximum(a, tensor({3.0F})).to_vector<float>(), (std::vector<float>{3, 5, 3}));
  EXPECT_EQ(minimum(arange(3).reshape({3, 1}), arange(2)).to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{0, 0, 0, 1, 0, 1}));
  EXPECT_EQ(maximum(a.to(Dtype::f16), b.to(Dtype::f16)).dtype(), Dtype::f16);
  EXPECT_EQ(maximum(a.to(Dtype::bf16), b.to(Dtype::bf16)).to(Dtype::f32).to_vector<float>(),
            (std::vector<float>{2, 5, -3}));
}

TEST(Maximum, TakesIntegersOnADevice) {
  for (const Dtype dtype : {Dtype::i64, Dtype::i32, Dtype::f32}) {
    const Tensor a = arange(3).to("cpu:0").to(dtype);
    const Tensor one = full({1}, 1, {.dtype = dtype, .device = "cpu:0"});
    EXPECT_EQ(maximum(a, one).to(Dtype::f64).to_vector<double>(), (std::vector<double>{1, 1, 2}));
    EXPECT_EQ(minimum(a, one).to(Dtype::f64).to_vector<double>(), (std::vector<double>{0, 1, 1}));
    EXPECT_EQ(maximum(a, a).to(Dtype::f64).to_vector<double>(), (std::vector<double>{0, 1, 2}));
    EXPECT_EQ(min(a, 0).indices.item<std::int64_t>(), 0);
    EXPECT_EQ(max(a).item(), 2);
  }
}

TEST(Maximum, ANanIsTheResultWhereverItStands) {
  const Tensor nan = tensor({std::nanf("")});
  const Tensor one = tensor({1.0F});
  for (const Tensor& result :
       {maximum(nan, one), maximum(one, nan), minimum(nan, one), minimum(one, nan)}) {
    EXPECT_TRUE(std::isnan(result.item()));
  }
}

TEST(Maximum, HasFirstAndSecondDerivatives) {
  const auto both = [](const Tensor& a, const Tensor& b) {
    return std::vector<Tensor>{maximum(a * a, b * b), minimum(a * a, b * b)};
  };
  const std::vector<std::vector<Tensor>> cases = {
      {varied_leaf({2, 3}), varied_leaf({2, 3}, 1)},
      {varied_leaf({2, 1}), varied_leaf({3}, 1)},
      {varied_leaf({2, 3}), varied({2, 3}, 1)},
  };
  for (const std::vector<Tensor>& x : cases) {
    EXPECT_TRUE(gradcheck(both, x));
    EXPECT_TRUE(gradgradcheck(both, x));
  }
}

// As in torch: a half for each of two equal ones, and a NaN passes its gradient.
TEST(Maximum, GradientsAtKinksAreTorchs) {
  const Tensor a = tensor({2.0F, 1.0F, 3.0F}).requires_grad_();
  const Tensor b = tensor({2.0F, 2.0F, 2.0F}).requires_grad_();
  const Tensor ones_grad = ones({3});
  maximum(a, b).backward(ones_grad);
  EXPECT_EQ(a.grad().to_vector<float>(), (std::vector<float>{0.5, 0, 1}));
  EXPECT_EQ(b.grad().to_vector<float>(), (std::vector<float>{0.5, 1, 0}));
  a.set_grad({});
  b.set_grad({});
  minimum(a, b).backward(ones_grad);
  EXPECT_EQ(a.grad().to_vector<float>(), (std::vector<float>{0.5, 1, 0}));
  EXPECT_EQ(b.grad().to_vector<float>(), (std::vector<float>{0.5, 0, 1}));
}

TEST(Max, AlongADimensionHasValuesAndTheirPlaces) {
  const Tensor x = tensor({1.0F, 5.0F, 5.0F, 7.0F, -2.0F, 0.0F}).reshape({2, 3});
  const auto [values, indices] = max(x, 1);
  EXPECT_EQ(values.to_vector<float>(), (std::vector<float>{5, 7}));
  EXPECT_EQ(indices.to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 0}));
  const Extremes least = min(x, 0, true);
  EXPECT_EQ(least.values.sizes(), (Shape{1, 3}));
  EXPECT_EQ(least.indices.sizes(), (Shape{1, 3}));
  EXPECT_EQ(least.values.to_vector<float>(), (std::vector<float>{1, -2, 0}));
  EXPECT_EQ(least.indices.to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 1, 1}));
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const Tensor integers = tensor({kMost, kLeast, std::int64_t{0}});
  EXPECT_EQ(min(integers, 0).values.item<std::int64_t>(), kLeast);
  EXPECT_EQ(min(integers, 0).indices.item<std::int64_t>(), 1);
  EXPECT_EQ(max(integers, 0).values.item<std::int64_t>(), kMost);
  EXPECT_EQ(max(scalar_tensor(3.0F), 0).values.item(), 3);
  EXPECT_EQ(max(x.to(Dtype::f16), -1).values.dtype(), Dtype::f16);
  const Tensor nan = tensor({1.0F, std::nanf(""), 2.0F});
  EXPECT_EQ(max(nan, 0).indices.item<std::int64_t>(), 1);
  EXPECT_EQ(min(nan, 0).indices.item<std::int64_t>(), 1);
  EXPECT_TRUE(throws<IndexError>([] { (void)max(zeros({2, 0}), 1); }, "max: expected dimension 1"));
  EXPECT_TRUE(throws<IndexError>([] { (void)min(zeros({2, 0}), 1); }, "min: expected dimension 1"));
  const Tensor flags = ones({2}, Dtype::boolean);
  EXPECT_TRUE(throws<DtypeError>([&] { (void)max(flags, 0); }, "max: expected", "got bool"));
  EXPECT_TRUE(throws<DtypeError>([&] { (void)min(flags, 0); }, "min: expected", "got bool"));
  EXPECT_THROW((void)min(x, 2), IndexError);
  EXPECT_THROW((void)max(Tensor(), 0), ValueError);
}

TEST(Max, OfAllElements) {
  const Tensor x = varied({3, 4, 5});
  const std::vector<double> values = x.to_vector<double>();
  EXPECT_EQ(max(x).item(), *std::max_element(values.begin(), values.end()));
  EXPECT_EQ(min(x).item(), *std::min_element(values.begin(), values.end()));
  EXPECT_EQ(max(x).sizes(), Shape{});
  EXPECT_EQ(min(arange(4)).item<std::int64_t>(), 0);
  EXPECT_TRUE(throws<IndexError>([] { (void)max(zeros({0})); }, "max: expected"));
  EXPECT_THROW((void)min(Tensor()), ValueError);
}

TEST(Max, HasFirstAndSecondDerivatives) {
  const auto all = [](const Tensor& x) {
    const Tensor y = x * x;
    return std::vector<Tensor>{max(y, 0).values, min(y, 1, true).values, max(y, -1).values, max(y),
                               min(y)};
  };
  EXPECT_TRUE(gradcheck(all, {varied_leaf({3, 4})}));
  EXPECT_TRUE(gradgradcheck(all, {varied_leaf({3, 4})}));
}

// As in torch: along a dimension the first of equals gets all, otherwise each has a part.
TEST(Max, GradientsOfEqualElementsAreTorchs) {
  const Tensor x = tensor({1.0F, 4.0F, 4.0F}).requires_grad_();
  max(x, 0).values.backward(scalar_tensor(6.0F));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 6, 0}));
  x.set_grad({});
  max(x).backward(scalar_tensor(6.0F));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 3, 3}));
}

TEST(Maximum, NamesBothOperands) {
  const Tensor x = varied({2, 3});
  expect_error<ShapeError>([&] { maximum(x, varied({2})); }, {"maximum", "[2, 3]", "[2]"});
  expect_error<DtypeError>([&] { minimum(x, varied<float>({3})); }, {"minimum", "f64", "f32"});
  expect_error<DeviceError>([&] { maximum(x, x.to("cpu:1")); }, {"cpu:0", "cpu:1"});
  expect_error<ValueError>([&] { maximum(x, Tensor()); }, {"maximum", "undefined"});
}

TEST(Max, OfASingleNumberHasMemoryOfItsOwn) {
  const Tensor x = full({}, 3);
  max(x) += 1;
  max(x, 0).values += 1;
  EXPECT_EQ(x.item(), 3);
}

TEST(Max, ANaNTakesTheGradient) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor x = from_values(std::vector<double>{1, nan, 3}, {3}).requires_grad_();
  max(x).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{0, 1, 0}));
}

TEST(Maximum, WhatIsNotTakenGetsNothingOfAnInfiniteGradient) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor a = from_values(std::vector<double>{1, 2}, {2}).requires_grad_();
  const Tensor b = from_values(std::vector<double>{2, 1}, {2}).requires_grad_();
  maximum(a, b).backward(from_values(std::vector<double>{infinity, infinity}, {2}));
  EXPECT_EQ(a.grad().to_vector<double>(), (std::vector<double>{0, infinity}));
  EXPECT_EQ(b.grad().to_vector<double>(), (std::vector<double>{infinity, 0}));
}

}  // namespace max_test
}  // namespace lockstep
