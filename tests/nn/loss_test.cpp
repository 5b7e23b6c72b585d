// SPDX-License-Identifier: Apache-2.0
#include <lockstep/error.hpp>
#include <lockstep/module/concepts.hpp>
#include <lockstep/nn/loss.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>

#include "nn/support.hpp"

namespace lockstep {
namespace loss_test {

using testing::f32;
using testing::message_of;
using testing::Values;
using testing::values_of;

static_assert(Module<nn::CrossEntropyLoss> && Module<nn::MSELoss>);
static_assert(std::is_same_v<nn::CrossEntropy, nn::CrossEntropyLoss>);

Tensor labels(std::initializer_list<std::int64_t> values) { return tensor(values); }

TEST(CrossEntropyLoss, ByHand) {
  const Tensor logits = from_values(Values{1, 2, 3, 0, 0, 0}, {2, 3});
  const Tensor target = labels({2, 0});
  const double first = std::log(std::exp(1) + std::exp(2) + std::exp(3)) - 3;
  const double second = std::log(3.0);
  EXPECT_NEAR(values_of(nn::CrossEntropyLoss{}(logits, target))[0], (first + second) / 2, 1e-14);
  EXPECT_NEAR(values_of(nn::CrossEntropyLoss{Reduction::sum}.forward(logits, target))[0],
              first + second, 1e-14);
  const Values each = values_of(nn::CrossEntropyLoss{.reduction = Reduction::none}(logits, target));
  ASSERT_EQ(each.size(), 2U);
  EXPECT_NEAR(each[0], first, 1e-14);
  EXPECT_NEAR(each[1], second, 1e-14);
}

TEST(CrossEntropyLoss, NamesShapesAndLabelsThatDoNotFit) {
  const nn::CrossEntropyLoss loss;
  const std::string text = message_of<ShapeError>([&] { loss(zeros({2, 3}), labels({0, 1, 2})); });
  EXPECT_NE(text.find("[2, 3]"), std::string::npos) << text;
  EXPECT_NE(text.find("[3]"), std::string::npos) << text;
  EXPECT_THROW(loss(zeros({2, 3}), labels({0, 3})), IndexError);
}

TEST(MSELoss, ByHand) {
  const Tensor input = f32({1, 2, 3}, {3});
  const Tensor target = f32({1, 4, 0}, {3});
  EXPECT_FLOAT_EQ(static_cast<float>(values_of(nn::MSELoss{}(input, target))[0]), 13.0F / 3.0F);
  EXPECT_EQ(values_of(nn::MSELoss{Reduction::sum}(input, target)), Values{13});
  EXPECT_EQ(values_of(nn::MSELoss{Reduction::none}.forward(input, target)), (Values{0, 4, 9}));
}

TEST(MSELoss, NamesBothShapes) {
  const std::string text = message_of<ShapeError>([] { nn::MSELoss{}(zeros({4, 1}), zeros({4})); });
  EXPECT_NE(text.find("[4, 1]"), std::string::npos) << text;
  EXPECT_NE(text.find("[4]"), std::string::npos) << text;
}

TEST(CrossEntropyLoss, SmoothsLabels) {
  const Tensor logits = f32({0, 0, 0, 0}, {2, 2});
  EXPECT_NEAR(values_of(nn::CrossEntropyLoss{.label_smoothing = 0.5}(logits, labels({1, 0})))[0],
              std::log(2.0), 1e-6);
  const Tensor sure = from_values(Values{0, 10}, {1, 2});
  const double wrong = std::log1p(std::exp(10.0));
  const double right = std::log1p(std::exp(-10.0));
  EXPECT_NEAR(values_of(nn::CrossEntropyLoss{.label_smoothing = 0.2}(sure, labels({1})))[0],
              0.9 * right + 0.1 * wrong, 1e-12);
}

TEST(PairLosses, ByHand) {
  const Tensor input = f32({0.5, 0.25}, {2});
  const Tensor target = f32({1, 0.5}, {2});
  EXPECT_EQ(values_of(nn::L1Loss{}(input, target)), Values{0.375});
  EXPECT_EQ(values_of(nn::L1Loss{Reduction::none}.forward(input, target)), (Values{0.5, 0.25}));
  EXPECT_EQ(values_of(nn::SmoothL1Loss{}(input, target)), Values{(0.125 + 0.03125) / 2});
  EXPECT_EQ(values_of(nn::SmoothL1Loss{Reduction::sum, 0.25}.forward(input, target)),
            Values{0.375 + 0.125});
  const double first = -std::log(0.5);
  const double second = -0.5 * (std::log(0.25) + std::log(0.75));
  EXPECT_NEAR(values_of(nn::BCELoss{}(input, target))[0], (first + second) / 2, 1e-6);
  EXPECT_NEAR(values_of(nn::BCELoss{Reduction::sum}.forward(input, target))[0], first + second,
              1e-6);
  const Tensor logits = f32({0, -std::log(3.0)}, {2});  // of these probabilities
  EXPECT_NEAR(values_of(nn::BCEWithLogitsLoss{}(logits, target))[0], (first + second) / 2, 1e-6);
  EXPECT_NEAR(values_of(nn::BCEWithLogitsLoss{Reduction::sum}.forward(logits, target))[0],
              first + second, 1e-6);
}

TEST(Losses, HaveNoParameters) {
  EXPECT_TRUE(parameters(nn::L1Loss{}).empty());
  EXPECT_TRUE(parameters(nn::SmoothL1Loss{}).empty());
  EXPECT_TRUE(parameters(nn::BCELoss{}).empty());
  EXPECT_TRUE(parameters(nn::BCEWithLogitsLoss{}).empty());
  EXPECT_TRUE(parameters(nn::CrossEntropyLoss{}).empty());
  EXPECT_TRUE(parameters(nn::MSELoss{}).empty());
}

}  // namespace loss_test
}  // namespace lockstep
