// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/concepts.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/tensor/random.hpp>

#include <gtest/gtest.h>

#include <string>

#include "nn/support.hpp"

namespace lockstep {
namespace linear_test {

using testing::f32;
using testing::greatest_magnitude;
using testing::message_of;
using testing::Names;
using testing::parameter_names;
using testing::Values;
using testing::values_of;

static_assert(Module<nn::Linear> && ForwardableWith<const nn::Linear, Tensor>);

TEST(Linear, HasTorchsShapesAndNames) {
  const nn::Linear layer{5, 2};
  EXPECT_EQ(layer.weight.sizes(), (Shape{2, 5}));
  EXPECT_EQ(layer.bias.sizes(), (Shape{2}));
  EXPECT_EQ(layer.weight.dtype(), Dtype::f32);
  EXPECT_TRUE(layer.weight.requires_grad() && layer.bias.requires_grad());
  EXPECT_EQ(parameter_names(layer), (Names{"weight", "bias"}));
}

TEST(Linear, FirstValuesAreWithinTorchsBound) {
  manual_seed(3);
  const nn::Linear layer{100, 400};
  EXPECT_LE(greatest_magnitude(layer.weight), 0.1);
  EXPECT_GT(greatest_magnitude(layer.weight), 0.0999);
  EXPECT_LE(greatest_magnitude(layer.bias), 0.1);
  EXPECT_GT(greatest_magnitude(layer.bias), 0.098);
}

TEST(Linear, TheSeedDecidesTheFirstValues) {
  manual_seed(3);
  const nn::Linear first{4, 3};
  const nn::Linear second{4, 3};
  manual_seed(3);
  const nn::Linear again{4, 3, {.device = "cpu:1"}};
  EXPECT_EQ(values_of(first.weight), values_of(again.weight));
  EXPECT_EQ(values_of(first.bias), values_of(again.bias));
  EXPECT_NE(values_of(first.weight), values_of(second.weight));
  EXPECT_EQ(again.bias.device(), Device("cpu:1"));
}

// [1, 2] · [[1, 3], [−1, 0.5], [0, 2]]ᵀ + [10, 20, 30]
TEST(Linear, ForwardByHand) {
  nn::Linear layer{2, 3};
  layer.weight = Parameter(f32({1, 3, -1, 0.5, 0, 2}, {3, 2}));
  layer.bias = Parameter(f32({10, 20, 30}, {3}));
  const Tensor x = f32({1, 2}, {1, 2});
  EXPECT_EQ(values_of(layer(x)), (Values{17, 20, 34}));
  EXPECT_EQ(values_of(layer.forward(x)), (Values{17, 20, 34}));
  EXPECT_EQ(layer(zeros({4, 5, 2})).sizes(), (Shape{4, 5, 3}));
}

TEST(Linear, GradientsByHand) {
  const nn::Linear layer{2, 1};
  sum(layer(f32({1, 2, 3, 4}, {2, 2}))).backward();
  EXPECT_EQ(values_of(layer.weight.grad()), (Values{4, 6}));
  EXPECT_EQ(values_of(layer.bias.grad()), (Values{2}));
}

TEST(Linear, CanGoWithoutBias) {
  const nn::Linear layer{2, 3, {.bias = false, .dtype = Dtype::f64}};
  EXPECT_FALSE(layer.bias.defined());
  EXPECT_EQ(parameter_names(layer), Names{"weight"});
  EXPECT_EQ(values_of(layer(zeros({1, 2}, {.dtype = Dtype::f64}))), (Values{0, 0, 0}));
}

TEST(Linear, ACopySharesItsParameters) {
  const nn::Linear layer{2, 3};
  const nn::Linear copy = layer;
  EXPECT_TRUE(copy.weight.is_same(layer.weight));
  EXPECT_TRUE(copy.bias.is_same(layer.bias));
}

TEST(Linear, NamesBothShapesThatDoNotFit) {
  const nn::Linear layer{5, 2};
  const std::string text = message_of<ShapeError>([&] { layer(zeros({30, 4})); });
  EXPECT_NE(text.find("[30, 4]"), std::string::npos) << text;
  EXPECT_NE(text.find("[2, 5]"), std::string::npos) << text;
  EXPECT_THROW(layer(zeros({30, 5}, {.dtype = Dtype::f64})), DtypeError);
  EXPECT_THROW(layer(zeros({30, 5}, {.device = "cpu:1"})), DeviceError);
}

TEST(Linear, RefusesBadArguments) {
  EXPECT_EQ(message_of<ValueError>([] {
              nn::Linear{0, 2};
            }),
            "Linear: expected in_features to be at least 1, got 0");
  EXPECT_EQ(message_of<ValueError>([] {
              nn::Linear{2, -3};
            }),
            "Linear: expected out_features to be at least 1, got -3");
  EXPECT_EQ(message_of<DtypeError>([] {
              nn::Linear{2, 3, {.dtype = Dtype::i64}};
            }),
            "Linear: expected parameters of f32 or f64, got i64");
}

}  // namespace linear_test
}  // namespace lockstep
