// SPDX-License-Identifier: Apache-2.0
#include <lockstep/tensor/creation.hpp>

#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/random.hpp>

#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace lockstep {
namespace creation_test {

using testing::throws;

TEST(Creation, FillsEveryDtype) {
  for (int i = 0; i < 8; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    const Tensor x = ones({3}, {.dtype = dtype, .device = "cpu:1"});
    EXPECT_EQ(x.dtype(), dtype);
    EXPECT_EQ(x.to(Dtype::f64).to_vector<double>(), (std::vector<double>{1, 1, 1})) << dtype;
  }
  EXPECT_EQ(full({2}, -2.5).to_vector<float>(), (std::vector<float>{-2.5, -2.5}));
  constexpr float kMost = std::numeric_limits<float>::max();
  EXPECT_EQ(full({1}, kMost).to_vector<float>(), std::vector<float>{kMost});
  EXPECT_EQ(zeros({}).item(), 0);
  EXPECT_EQ(zeros({0, 5}).numel(), 0);
  EXPECT_TRUE(ones({1}, {.requires_grad = true}).requires_grad());
}

TEST(Creation, TakesADtypeAlone) {
  for (const Tensor& x : {empty({2}, Dtype::f64), full({2}, 1, Dtype::f64), zeros({2}, Dtype::f64),
                          ones({2}, Dtype::f64), rand({2}, Dtype::f64), randn({2}, Dtype::f64),
                          arange(2, Dtype::f64)}) {
    EXPECT_EQ(x.dtype(), Dtype::f64);
    EXPECT_EQ(x.sizes(), (Shape{2}));
  }
  EXPECT_EQ(ones({2}, Dtype::f64).to_vector<double>(), (std::vector<double>{1, 1}));
  EXPECT_EQ(arange(2, {}).dtype(), TensorOptions{}.dtype);
}

TEST(Creation, LikeAnotherTensor) {
  const Tensor x = ones({2, 3}, {.dtype = Dtype::f64, .device = "cpu:1", .requires_grad = true});
  for (const Tensor& y : {empty_like(x), zeros_like(x), ones_like(x)}) {
    EXPECT_EQ(y.sizes(), x.sizes());
    EXPECT_EQ(y.dtype(), x.dtype());
    EXPECT_EQ(y.device(), x.device());
    EXPECT_FALSE(y.requires_grad());
  }
}

TEST(Creation, FromValues) {
  EXPECT_EQ(tensor({1.5F, 2.0F}).sizes(), (Shape{2}));
  EXPECT_EQ(tensor<double>({1, 2}).dtype(), Dtype::f64);
  EXPECT_EQ(tensor({true, false}).to_vector<bool>(), (std::vector<bool>{true, false}));
  EXPECT_EQ(tensor(std::vector{1.5F, 2.0F}).to_vector<float>(), (std::vector<float>{1.5F, 2}));
  EXPECT_EQ(tensor(std::vector{true, false}).to_vector<bool>(), (std::vector<bool>{true, false}));
  EXPECT_EQ(tensor(std::vector<std::int64_t>{7}, "cpu:1").device(), Device("cpu:1"));
  EXPECT_EQ(tensor(std::vector<double>()).sizes(), (Shape{0}));
  const std::vector<std::int32_t> values = {1, 2, 3, 4};
  const Tensor x = from_values(values, {2, 2}, "cpu:2");
  EXPECT_EQ(x.device(), Device("cpu:2"));
  EXPECT_EQ(x.to_vector<std::int32_t>(), values);
  EXPECT_EQ(from_values(std::span<const float>(), {0, 3}).sizes(), (Shape{0, 3}));
  EXPECT_EQ(scalar_tensor(std::int64_t{7}, "cpu:1").item<std::int64_t>(), 7);
  EXPECT_THROW((void)from_values(values, {3}), ShapeError);
}

TEST(Creation, Arange) {
  EXPECT_EQ(arange(3).to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(arange(3, {.dtype = Dtype::f32, .device = "cpu:1"}).to_vector<float>(),
            (std::vector<float>{0, 1, 2}));
  EXPECT_EQ(arange(0).numel(), 0);
  EXPECT_EQ(arange(0, {.dtype = Dtype::u8}).numel(), 0);
  EXPECT_THROW((void)arange(-1), ValueError);
  EXPECT_EQ(arange(256, Dtype::u8).to_vector<std::uint8_t>().back(), 255);
  EXPECT_TRUE(throws<DtypeError>([] { (void)arange(257, Dtype::u8); }, "arange", "256", "u8"));
  EXPECT_NO_THROW((void)arange(65505, Dtype::f16));
  EXPECT_TRUE(throws<DtypeError>([] { (void)arange(65521, Dtype::f16); }, "65520", "f16"));
  EXPECT_THROW((void)arange(INT64_MAX), ShapeError);
}

TEST(Creation, ShapesThatNoMemoryHoldsAreErrors) {
  EXPECT_THROW((void)empty({-1}), ShapeError);
  EXPECT_THROW((void)empty({std::int64_t{1} << 40, std::int64_t{1} << 40}), ShapeError);
}

}  // namespace creation_test
}  // namespace lockstep
