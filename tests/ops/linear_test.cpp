// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/linear.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "support/gradcheck.hpp"
#include "support/varied.hpp"

namespace lockstep {
namespace linear_test {

using testing::expect_error;
using testing::gradcheck;
using testing::gradgradcheck;
using testing::varied;
using testing::varied_leaf;

TEST(Linear, MultipliesWithTheTransposedWeightAndAddsTheBias) {
  const Tensor x = from_values(std::vector<float>{1, 2, 3, 4}, {2, 2});
  const Tensor weight = from_values(std::vector<float>{1, 0, 0, 1, 1, 1}, {3, 2});
  const Tensor bias = tensor<float>({10, 20, 30});
  EXPECT_EQ(linear(x, weight).to_vector<float>(), (std::vector<float>{1, 2, 3, 3, 4, 7}));
  EXPECT_EQ(linear(x, weight, bias).to_vector<float>(),
            (std::vector<float>{11, 22, 33, 13, 24, 37}));
}

TEST(Linear, TakesAnyLeadingDimensions) {
  const Tensor weight = varied({3, 4}, 1);
  const Tensor bias = varied({3}, 2);
  const Tensor x = varied({2, 5, 4});
  const std::vector<double> flat = linear(x.reshape({10, 4}), weight, bias).to_vector<double>();
  const Tensor y = linear(x, weight, bias);
  EXPECT_EQ(y.sizes(), (Shape{2, 5, 3}));
  EXPECT_EQ(y.to_vector<double>(), flat);
  EXPECT_EQ(linear(varied({4}), weight, bias).sizes(), Shape{3});
  EXPECT_EQ(linear(varied({0, 4}), weight, bias).sizes(), (Shape{0, 3}));
  EXPECT_EQ(
      linear(varied({2, 0}), varied({3, 0}), bias).to_vector<double>(),
      linear(zeros({2, 1}, {.dtype = Dtype::f64, .device = Device("cpu:0")}), varied({3, 1}), bias)
          .to_vector<double>());
}

TEST(Linear, HasFirstAndSecondDerivatives) {
  const auto f = [](const std::vector<Tensor>& in) {
    return linear(in[0], in[1], in.size() > 2 ? in[2] : Tensor());
  };
  for (const Shape& shape : {Shape{5, 4}, Shape{4}, Shape{2, 3, 4}}) {
    const Tensor x = varied_leaf(shape);
    const Tensor weight = varied_leaf({3, 4}, 1);
    EXPECT_TRUE(gradcheck(f, {x, weight})) << shape;
    EXPECT_TRUE(gradcheck(f, {x, weight, varied_leaf({3}, 2)})) << shape;
    EXPECT_TRUE(gradgradcheck(f, {x, weight, varied_leaf({3}, 2)})) << shape;
  }
}

TEST(Linear, ComputesOnlyTheGradientsThatAreAskedFor) {
  const Tensor x = varied({5, 4});
  const Tensor weight = varied_leaf({3, 4}, 1);
  const Tensor bias = varied({3}, 2);
  linear(x, weight, bias).backward(varied({5, 3}, 3));
  EXPECT_FALSE(x.grad().defined());
  EXPECT_TRUE(weight.grad().defined());
  EXPECT_FALSE(bias.grad().defined());
}

TEST(Linear, NamesBothOperandsInItsErrors) {
  const Tensor x = varied({30, 5});
  const Tensor weight = varied({2, 4});
  expect_error<ShapeError>([&] { linear(x, weight); }, {"linear", "[30, 5]", "[2, 4]", "to be 4"});
  expect_error<ShapeError>([&] { linear(x, varied({5})); }, {"linear", "[30, 5]", "[5]"});
  expect_error<ShapeError>([&] { linear(varied({}), weight); }, {"linear", "[]", "[2, 4]"});
  expect_error<ShapeError>(
      [&] {
        linear(varied({3, 4}), weight, varied({3}));
      },
      {"bias", "[3]", "[2, 4]"});
  expect_error<DtypeError>([&] { linear(varied<float>({3, 4}), weight); }, {"f32", "f64"});
  expect_error<DeviceError>(
      [&] {
        linear(varied({3, 4}, 0, Device("cpu:2")), weight);
      },
      {"linear", "cpu:2", "cpu:0"});
  expect_error<DeviceError>(
      [&] {
        linear(varied({3, 4}), weight, varied({2}, 0, Device("cpu:1")));
      },
      {"bias", "cpu:1", "cpu:0"});
}

TEST(Linear, KeepsNoOperandThatNoGradientNeeds) {
  for (const bool frozen : {false, true}) {
    Tensor x = varied_leaf({2, 3}) * 1;
    const Tensor weight = varied({4, 3}).requires_grad_(!frozen);
    const std::weak_ptr<detail::TensorImpl> kept = x.impl();
    const Tensor y = linear(x, weight);
    x = {};
    EXPECT_EQ(kept.expired(), frozen);
  }
}

}  // namespace linear_test
}  // namespace lockstep
