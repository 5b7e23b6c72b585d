// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/to.hpp>

#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/tensor/random.hpp>

#include "support/gradcheck.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {
namespace to_test {

TEST(To, SameDeviceOrDtypeIsTheTensorItself) {
  const Tensor x = ones({2}, {.device = "cpu:1"});
  EXPECT_TRUE(x.to(Device("cpu:1")).is_same(x));
  EXPECT_TRUE(x.to(Dtype::f32).is_same(x));
}

TEST(To, MovesBetweenDevices) {
  const Tensor x = arange(6).reshape({2, 3}).t();
  const Tensor there = x.to(Device("cpu:1"));
  EXPECT_EQ(there.device(), Device("cpu:1"));
  const Tensor further = there.to(Device("cpu:2"));
  EXPECT_EQ(further.to(Device("cpu")).to_vector<std::int64_t>(), x.to_vector<std::int64_t>());
  EXPECT_EQ(further.sizes(), (Shape{3, 2}));
  EXPECT_THROW((void)x.to(Device("cpu:99")), DeviceError);
}

TEST(To, ConvertsBetweenDtypes) {
  const Tensor x = tensor({-1.5F, 0.0F, 2.75F});
  EXPECT_EQ(x.to(Dtype::i64).to_vector<std::int64_t>(), (std::vector<std::int64_t>{-1, 0, 2}));
  EXPECT_EQ(x.to(Dtype::f64).to_vector<double>(), (std::vector<double>{-1.5, 0, 2.75}));
  EXPECT_EQ(x.to(Dtype::boolean).to_vector<bool>(), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(x.to(Dtype::f16).to(Dtype::f32).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(x.to(Dtype::bf16).to(Dtype::f32).to_vector<float>(), x.to_vector<float>());
}

// Alone and side by side, for which the compiler may have other instructions.
TEST(To, WhatNoByteHoldsIsTakenModulo256) {
  const std::vector<float> values = {-1, -1.5, -200, 300.7F, 256, 70000, 3e9F, -3e9F};
  const std::vector<std::uint8_t> expected = {255, 255, 56, 44, 0, 112, 0, 0};
  std::vector<float> many;
  std::vector<std::uint8_t> of_many;
  for (int i = 0; i < 16; ++i) {
    many.insert(many.end(), values.begin(), values.end());
    of_many.insert(of_many.end(), expected.begin(), expected.end());
  }
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    EXPECT_EQ(tensor(many).to(dtype).to(Dtype::u8).to_vector<std::uint8_t>(), of_many);
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(tensor({values[i]}).to(dtype).to(Dtype::u8).to_vector<std::uint8_t>()[0],
                expected[i]);
    }
  }
}

TEST(To, GradientsComeBackToTheSource) {
  const Tensor x = ones({2}, {.requires_grad = true});
  (x.to(Device("cpu:1")).to(Dtype::f64) * 3)
      .to(Device("cpu:0"))
      .backward(ones({2}, {.dtype = Dtype::f64, .device = "cpu:0"}));
  EXPECT_EQ(x.grad().device(), Device("cpu"));
  EXPECT_EQ(x.grad().dtype(), Dtype::f32);
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{3, 3}));
  EXPECT_FALSE(x.to(Dtype::i64).requires_grad());
}

TEST(To, GradientsAgreeWithFiniteDifferences) {
  const TensorOptions leaf{.dtype = Dtype::f64, .device = "cpu:3", .requires_grad = true};
  const auto move = [](const Tensor& x) {
    return (x * x).to(Device("cpu:1")).t().to(Device("cpu"));
  };
  const std::vector<Tensor> x = {rand({2, 3}, leaf, 1, 2)};
  EXPECT_TRUE(testing::gradcheck(move, x));
  EXPECT_TRUE(testing::gradgradcheck(move, x));
}

TEST(To, WhatAnIntegerDtypeDoesNotReachIsItsLeast) {
  const float far = 3e38F;
  const Tensor x = tensor({NAN, INFINITY, -INFINITY, far, -far, 3e9F, -0.5F, 300.7F, -5.5F});
  constexpr std::int64_t kLeast = INT64_MIN;
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    const Tensor y = x.to(dtype);
    EXPECT_EQ(y.to(Dtype::i64).to_vector<std::int64_t>(),
              (std::vector<std::int64_t>{kLeast, kLeast, kLeast, kLeast, kLeast, 3000000000, 0, 300,
                                         -5}));
    EXPECT_EQ(y.to(Dtype::i32).to_vector<std::int32_t>(),
              (std::vector<std::int32_t>{INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN,
                                         INT32_MIN, 0, 300, -5}));
    EXPECT_EQ(y.to(Dtype::u8).to_vector<std::uint8_t>(),
              (std::vector<std::uint8_t>{0, 0, 0, 0, 0, 3000000000 % 256, 0, 44, 251}));
  }
  EXPECT_EQ(tensor({-0x1p63, 0x1.fffffffffffffp62}).to(Dtype::i64).to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{kLeast, INT64_MAX - 1023}));
  EXPECT_EQ(full({1}, NAN, Dtype::f16).to(Dtype::i64).item<std::int64_t>(), kLeast);
  EXPECT_EQ(full({1}, INFINITY, Dtype::bf16).to(Dtype::i32).item<std::int32_t>(), INT32_MIN);
}

TEST(To, ItemReadsOneElement) {
  EXPECT_EQ(tensor({2.5F}).item(), 2.5);
  EXPECT_EQ(tensor({2.5F}).item<int>(), 2);
  EXPECT_EQ(full({1, 1}, 7, {.dtype = Dtype::i64, .device = "cpu:1"}).item<float>(), 7);
  EXPECT_EQ(full({}, 1, {.dtype = Dtype::boolean}).item<bool>(), true);
  EXPECT_EQ(full({}, 1.5, {.dtype = Dtype::bf16}).item<double>(), 1.5);
  EXPECT_EQ(arange(6).reshape({2, 3}).narrow(1, 2, 1).narrow(0, 1, 1).item<std::int64_t>(), 5);
  EXPECT_THROW((void)zeros({2}).item(), ShapeError);
  EXPECT_THROW((void)zeros({0}).item(), ShapeError);
}

TEST(To, VectorsAreRowMajorAndOfTheTensorsDtype) {
  const Tensor x = arange(4, {.dtype = Dtype::i64, .device = "cpu:2"}).reshape({2, 2}).t();
  EXPECT_EQ(x.to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 2, 1, 3}));
  EXPECT_EQ(zeros({0}).to_vector<float>(), std::vector<float>{});
  EXPECT_THROW((void)x.to_vector<float>(), DtypeError);
}

}  // namespace to_test
}  // namespace lockstep
