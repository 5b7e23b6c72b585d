// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/concepts.hpp>
#include <lockstep/nn/conv.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/tensor/random.hpp>

#include <gtest/gtest.h>

#include <string>

#include "nn/support.hpp"

namespace lockstep {
namespace conv_test {

using testing::f32;
using testing::greatest_magnitude;
using testing::message_of;
using testing::Names;
using testing::parameter_names;
using testing::Values;
using testing::values_of;

static_assert(Module<nn::Conv2d> && ForwardableWith<const nn::Conv2d, Tensor>);

TEST(Conv2d, HasTorchsShapesAndNames) {
  const nn::Conv2d layer{3, 8, {5, 2}};
  EXPECT_EQ(layer.weight.sizes(), (Shape{8, 3, 5, 2}));
  EXPECT_EQ(layer.bias.sizes(), (Shape{8}));
  EXPECT_EQ(parameter_names(layer), (Names{"weight", "bias"}));
  const nn::Conv2d without{3, 8, 5, {.bias = false}};
  EXPECT_EQ(parameter_names(without), Names{"weight"});
  const nn::Conv2d grouped{6, 9, {5, 2}, {.groups = 3}};
  EXPECT_EQ(grouped.weight.sizes(), (Shape{9, 2, 5, 2}));
  EXPECT_EQ(grouped.bias.sizes(), (Shape{9}));
}

TEST(Conv2d, FirstValuesAreWithinTorchsBound) {
  manual_seed(3);
  const nn::Conv2d layer{4, 400, 5};  // 4 · 5 · 5 = 100 inputs each
  EXPECT_LE(greatest_magnitude(layer.weight), 0.1);
  EXPECT_GT(greatest_magnitude(layer.weight), 0.0999);
  EXPECT_LE(greatest_magnitude(layer.bias), 0.1);
  EXPECT_GT(greatest_magnitude(layer.bias), 0.098);
  const nn::Conv2d grouped{400, 800, 5, {.groups = 100}};  // 100 inputs each, too
  EXPECT_LE(greatest_magnitude(grouped.weight), 0.1);
  EXPECT_GT(greatest_magnitude(grouped.weight), 0.0999);
  EXPECT_LE(greatest_magnitude(grouped.bias), 0.1);
}

// The image 1 … 9 under the kernel [[1, 0], [0, −1]]: 1 − 5, 2 − 6, 4 − 8, 5 − 9, plus 10.
TEST(Conv2d, ForwardByHand) {
  nn::Conv2d layer{1, 1, 2};
  layer.weight = Parameter(f32({1, 0, 0, -1}, {1, 1, 2, 2}));
  layer.bias = Parameter(f32({10}, {1}));
  const Tensor image = f32({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 1, 3, 3});
  EXPECT_EQ(values_of(layer(image)), (Values{6, 6, 6, 6}));
  EXPECT_EQ(layer.forward(image).sizes(), (Shape{1, 1, 2, 2}));
}

// The corners of the padded image: 0 − 1, 0 − 3 / 0 − 7, 5 − 9.
TEST(Conv2d, StrideAndPaddingByHand) {
  nn::Conv2d layer{1, 1, 2, {.stride = 2, .padding = 1, .bias = false}};
  layer.weight = Parameter(f32({1, 0, 0, -1}, {1, 1, 2, 2}));
  const Tensor image = f32({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 1, 3, 3});
  EXPECT_EQ(values_of(layer(image)), (Values{-1, -3, -7, -4}));
}

TEST(Conv2d, StrideAndPaddingMayDifferByDirection) {
  const nn::Conv2d layer{1, 2, {3, 5}, {.stride = {1, 2}, .padding = {1, 0}}};
  EXPECT_EQ(layer(zeros({4, 1, 10, 11})).sizes(), (Shape{4, 2, 10, 4}));
}

// A channel of ones and one of twos, each under a kernel of its own: 4 · 1 and 4 · 2 · 10.
TEST(Conv2d, GroupsByHand) {
  nn::Conv2d layer{2, 2, 2, {.groups = 2, .bias = false}};
  layer.weight = Parameter(f32({1, 1, 1, 1, 10, 10, 10, 10}, {2, 1, 2, 2}));
  const Tensor image = f32({1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2}, {1, 2, 2, 3});
  EXPECT_EQ(values_of(layer(image)), (Values{4, 4, 80, 80}));
}

// Each pixel by itself: 1 · 1 + 10 · 2, and so on.
TEST(Conv2d, AKernelOfOnePixelByHand) {
  nn::Conv2d layer{2, 1, 1, {.bias = false}};
  layer.weight = Parameter(f32({1, 10}, {1, 2, 1, 1}));
  EXPECT_EQ(values_of(layer(f32({1, 3, 2, 4}, {1, 2, 1, 2}))), (Values{21, 43}));
}

// The corners of the image 1 … 9: 1 − 9.
TEST(Conv2d, DilationByHand) {
  nn::Conv2d layer{1, 1, 2, {.dilation = 2, .bias = false}};
  layer.weight = Parameter(f32({1, 0, 0, -1}, {1, 1, 2, 2}));
  EXPECT_EQ(values_of(layer(f32({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 1, 3, 3}))), (Values{-8}));
}

TEST(Conv2d, GradientsByHand) {
  const nn::Conv2d layer{1, 1, 2};
  sum(layer(f32({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 1, 3, 3}))).backward();
  EXPECT_EQ(values_of(layer.weight.grad()), (Values{12, 16, 24, 28}));
  EXPECT_EQ(values_of(layer.bias.grad()), (Values{4}));
}

TEST(Conv2d, NamesBothShapesThatDoNotFit) {
  const nn::Conv2d layer{3, 8, 5};
  const std::string text = message_of<ShapeError>([&] { layer(zeros({2, 1, 28, 28})); });
  EXPECT_NE(text.find("[2, 1, 28, 28]"), std::string::npos) << text;
  EXPECT_NE(text.find("[8, 3, 5, 5]"), std::string::npos) << text;
}

TEST(Conv2d, RefusesBadArguments) {
  EXPECT_EQ(message_of<ValueError>([] {
              nn::Conv2d{0, 8, 5};
            }),
            "Conv2d: expected in_channels to be at least 1, got 0");
  EXPECT_THROW((nn::Conv2d{3, 0, 5}), ValueError);
  EXPECT_THROW((nn::Conv2d{3, 8, 5, {.stride = 0}}), ValueError);
  EXPECT_THROW((nn::Conv2d{3, 8, 5, {.padding = {0, -1}}}), ValueError);
  EXPECT_THROW((nn::Conv2d{3, 8, 5, {.dilation = {0, 1}}}), ValueError);
  EXPECT_THROW((nn::Conv2d{3, 8, 5, {.groups = 0}}), ValueError);
  EXPECT_THROW((nn::Conv2d{3, 9, 5, {.groups = 2}}), ValueError);
  EXPECT_EQ(message_of<ValueError>([] {
              nn::Conv2d{4, 9, 5, {.groups = 2}};
            }),
            "Conv2d: expected in_channels and out_channels to be divisible by groups, got 4, 9 and "
            "2");
  EXPECT_THROW((nn::Conv2d{3, 8, 5, {.dtype = Dtype::f16}}), DtypeError);
  EXPECT_EQ(message_of<ValueError>([] {
              nn::Conv2d{3, 8, {5, 0}};
            }),
            "Conv2d: expected a kernel of at least 1, got [5, 0]");
  EXPECT_EQ(message_of<ValueError>([] {
              nn::Conv2d{3, 8, {0, 5}};
            }),
            "Conv2d: expected a kernel of at least 1, got [0, 5]");
}

}  // namespace conv_test
}  // namespace lockstep
