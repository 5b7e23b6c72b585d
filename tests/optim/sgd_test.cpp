// SPDX-License-Identifier: Apache-2.0
#include <lockstep/error.hpp>
#include <lockstep/optim/sgd.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "optim/parameters.hpp"

namespace lockstep {
namespace sgd_test {

using testing::give_gradient;
using testing::make_parameter;
using testing::Values;
using testing::values_of;

// Four elements through five steps, with gradients that change.
const Values kStart{1.0, -2.0, 0.5, 3.0};
constexpr int kSteps = 5;

double gradient_at(int step, std::size_t i) {
  return std::sin(1.0 + 0.7 * step + 1.3 * static_cast<double>(i));
}

// torch.optim.SGD's documented algorithm for one element, in plain arithmetic.
double expected_after(double value, std::size_t i, const optim::SGDOptions& options) {
  double b = 0;
  for (int t = 1; t <= kSteps; ++t) {
    double g = gradient_at(t, i);
    if (options.weight_decay != 0) g = g + options.weight_decay * value;
    if (options.momentum != 0) {
      if (t > 1) {
        b = options.momentum * b + (1 - options.dampening) * g;
      } else {
        b = g;
      }
      if (options.nesterov) {
        g = g + options.momentum * b;
      } else {
        g = b;
      }
    }
    value = value - options.lr * g;
  }
  return value;
}

Values trained(const optim::SGDOptions& options, Dtype dtype, Device device) {
  const Parameter parameter = make_parameter(kStart, dtype, device);
  optim::SGD sgd{std::vector<Parameter>{parameter}, options};
  for (int t = 1; t <= kSteps; ++t) {
    Values gradient(kStart.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = gradient_at(t, i);
    give_gradient(parameter, gradient);
    sgd.step();
  }
  return values_of(parameter);
}

void expect_torchs_steps(const optim::SGDOptions& options) {
  const Values f64 = trained(options, Dtype::f64, {});
  const Values f32 = trained(options, Dtype::f32, {});
  for (std::size_t i = 0; i < kStart.size(); ++i) {
    const double expected = expected_after(kStart[i], i, options);
    EXPECT_NEAR(f64[i], expected, 1e-14) << "element " << i;
    EXPECT_NEAR(f32[i], expected, 2e-6) << "element " << i;
  }
  testing::expect_same_on_both(trained(options, Dtype::f64, "cpu:1"), f64, Dtype::f64);
  testing::expect_same_on_both(trained(options, Dtype::f32, "cpu:1"), f32, Dtype::f32);
}

TEST(SGD, TakesPlainSteps) { expect_torchs_steps({.lr = 0.1}); }

TEST(SGD, DecaysWeights) { expect_torchs_steps({.lr = 0.1, .weight_decay = 0.05}); }

TEST(SGD, KeepsMomentum) { expect_torchs_steps({.lr = 0.1, .momentum = 0.9}); }

TEST(SGD, DampensAllButTheFirstStep) {
  expect_torchs_steps({.lr = 0.1, .momentum = 0.9, .dampening = 0.3});
}

TEST(SGD, LooksAheadWithNesterov) {
  expect_torchs_steps({.lr = 0.1, .momentum = 0.9, .nesterov = true});
}

TEST(SGD, CombinesMomentumDampeningAndDecay) {
  expect_torchs_steps({.lr = 0.02, .momentum = 0.8, .dampening = 0.5, .weight_decay = 0.1});
}

TEST(SGD, CombinesNesterovAndDecay) {
  expect_torchs_steps({.lr = 0.02, .momentum = 0.8, .weight_decay = 0.1, .nesterov = true});
}

// Worked out by hand: p = 1, g = 2, lr = 0.5, momentum = 0.5.
//   b = 2, p = 1 − 0.5·2 = 0;   b = 0.5·2 + 2 = 3, p = 0 − 0.5·3 = −1.5
TEST(SGD, TwoStepsByHand) {
  const Parameter parameter = make_parameter({1});
  optim::SGD sgd{std::vector{parameter}, {.lr = 0.5, .momentum = 0.5}};
  give_gradient(parameter, {2});
  sgd.step();
  EXPECT_EQ(values_of(parameter), Values{0});
  sgd.step();
  EXPECT_EQ(values_of(parameter), Values{-1.5});
}

// A place that is masked for good. No decay is none, of infinity as well.
TEST(SGD, AnInfiniteParameterStays) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double momentum : {0.0, 0.5}) {
    const Parameter parameter = make_parameter({-infinity, 1});
    optim::SGD sgd{std::vector{parameter}, {.lr = 0.5, .momentum = momentum}};
    give_gradient(parameter, {0, 2});
    sgd.step();
    EXPECT_EQ(values_of(parameter), (Values{-infinity, 0}));
  }
}

TEST(SGD, FirstStepOfALateParameterIsItsOwn) {
  const Parameter early = make_parameter({1});
  const Parameter late = make_parameter({1});
  optim::SGD sgd{std::vector{early, late}, {.lr = 0.5, .momentum = 0.5, .dampening = 0.5}};
  give_gradient(early, {2});
  sgd.step();
  EXPECT_EQ(values_of(late), Values{1});
  give_gradient(late, {2});
  sgd.step();
  EXPECT_EQ(values_of(late), Values{0}) << "not dampened";
  EXPECT_EQ(values_of(early), Values{-1}) << "b = 0.5·2 + 0.5·2";
}

TEST(SGD, HasTorchsDefaults) {
  const Parameter parameter = make_parameter({1});
  optim::SGD sgd{std::vector{parameter}};
  EXPECT_EQ(sgd.lr(), 1e-3);
  give_gradient(parameter, {1});
  sgd.step();
  sgd.step();
  EXPECT_DOUBLE_EQ(values_of(parameter)[0], 1 - 2e-3);
}

TEST(SGD, RefusesSettingsOutOfRange) {
  const std::vector<Parameter> list{make_parameter({1})};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW((optim::SGD{list, {.lr = -0.1}}), ValueError);
  EXPECT_THROW((optim::SGD{list, {.lr = nan}}), ValueError);
  EXPECT_THROW((optim::SGD{list, {.momentum = -0.9}}), ValueError);
  EXPECT_THROW((optim::SGD{list, {.momentum = 0.9, .dampening = nan}}), ValueError);
  EXPECT_THROW((optim::SGD{list, {.weight_decay = -1}}), ValueError);
  EXPECT_THROW((optim::SGD{list, {.nesterov = true}}), ValueError);
  EXPECT_THROW((optim::SGD{list, {.momentum = 0.9, .dampening = 0.1, .nesterov = true}}),
               ValueError);
}

}  // namespace sgd_test
}  // namespace lockstep
