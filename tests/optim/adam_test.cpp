// SPDX-License-Identifier: Apache-2.0
#include <lockstep/error.hpp>
#include <lockstep/optim/adam.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "optim/parameters.hpp"

namespace lockstep {
namespace adam_test {

using testing::give_gradient;
using testing::make_parameter;
using testing::Values;
using testing::values_of;

// Four elements through six steps, with gradients that change.
const Values kStart{1.0, -2.0, 0.5, 3.0};
constexpr int kSteps = 6;

double gradient_at(int step, std::size_t i) {
  return std::cos(0.4 * step + 1.9 * static_cast<double>(i));
}

// torch.optim.Adam's documented algorithm for one element, in plain arithmetic.
double expected_after(double value, std::size_t i, const optim::AdamOptions& options) {
  const double beta1 = options.betas.first;
  const double beta2 = options.betas.second;
  double m = 0;
  double v = 0;
  for (int t = 1; t <= kSteps; ++t) {
    double g = gradient_at(t, i);
    if (options.weight_decay != 0) g = g + options.weight_decay * value;
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const double m_hat = m / (1 - std::pow(beta1, t));
    const double v_hat = v / (1 - std::pow(beta2, t));
    value = value - options.lr * m_hat / (std::sqrt(v_hat) + options.eps);
  }
  return value;
}

Values trained(const optim::AdamOptions& options, Dtype dtype, Device device,
               const Values& start = kStart) {
  const Parameter parameter = make_parameter(start, dtype, device);
  optim::Adam adam{std::vector<Parameter>{parameter}, options};
  for (int t = 1; t <= kSteps; ++t) {
    Values gradient;
    for (std::size_t i = 0; i < start.size(); ++i) {
      gradient.push_back(gradient_at(t, i % kStart.size()));
    }
    give_gradient(parameter, gradient);
    adam.step();
  }
  return values_of(parameter);
}

void expect_torchs_steps(const optim::AdamOptions& options) {
  const Values f64 = trained(options, Dtype::f64, {});
  const Values f32 = trained(options, Dtype::f32, {});
  for (std::size_t i = 0; i < kStart.size(); ++i) {
    const double expected = expected_after(kStart[i], i, options);
    EXPECT_NEAR(f64[i], expected, 1e-14) << "element " << i;
    EXPECT_NEAR(f32[i], expected, 5e-6) << "element " << i;
  }
  testing::expect_same_on_both(trained(options, Dtype::f64, "cpu:1"), f64, Dtype::f64);
  testing::expect_same_on_both(trained(options, Dtype::f32, "cpu:1"), f32, Dtype::f32);
}

TEST(Adam, TakesTorchsSteps) { expect_torchs_steps({.lr = 0.1}); }

TEST(Adam, TakesOtherBetas) { expect_torchs_steps({.lr = 0.05, .betas = {0.5, 0.8}}); }

TEST(Adam, TakesBetasOfZero) { expect_torchs_steps({.lr = 0.05, .betas = {0, 0}}); }

TEST(Adam, AddsALargeEpsOutsideTheRoot) { expect_torchs_steps({.lr = 0.1, .eps = 0.3}); }

TEST(Adam, DecaysWeightsThroughTheGradient) {
  expect_torchs_steps({.lr = 0.1, .weight_decay = 0.2});
}

// A host device takes some hundred elements at a time.
TEST(Adam, TakesTheSameStepsWithManyElements) {
  const Values few = trained({.lr = 0.1}, Dtype::f64, {});
  Values start;
  while (start.size() < 600) start.insert(start.end(), kStart.begin(), kStart.end());
  const Values many = trained({.lr = 0.1}, Dtype::f64, {}, start);
  for (std::size_t i = 0; i < start.size(); ++i) {
    EXPECT_NEAR(many[i], few[i % few.size()], 1e-14) << "element " << i;
  }
}

TEST(Adam, FirstStepIsTheLearningRateInTheGradientsDirection) {
  const Parameter parameter = make_parameter({0, 0, 0});
  optim::Adam adam{std::vector{parameter}, {.lr = 0.25, .eps = 0}};
  give_gradient(parameter, {1e-6, -3, 1e6});
  adam.step();
  const Values values = values_of(parameter);
  EXPECT_NEAR(values[0], -0.25, 1e-12);
  EXPECT_NEAR(values[1], 0.25, 1e-12);
  EXPECT_NEAR(values[2], -0.25, 1e-12);
}

TEST(Adam, CountsTheStepsOfEachParameter) {
  const Parameter early = make_parameter({0});
  const Parameter late = make_parameter({0});
  optim::Adam adam{std::vector{early, late}, {.lr = 0.25, .eps = 0}};
  give_gradient(early, {1});
  adam.step();
  adam.step();
  EXPECT_EQ(values_of(late), Values{0});
  give_gradient(late, {7});
  adam.step();
  EXPECT_NEAR(values_of(late)[0], -0.25, 1e-12) << "corrected as a first step";
}

TEST(Adam, AnInfiniteParameterStays) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Parameter parameter = make_parameter({-infinity, 1});
  optim::Adam adam{std::vector{parameter}, {.lr = 0.5}};
  give_gradient(parameter, {0, 2});
  adam.step();
  EXPECT_EQ(values_of(parameter)[0], -infinity);
  EXPECT_NEAR(values_of(parameter)[1], 0.5, 1e-6);
}

TEST(Adam, HasTorchsDefaults) {
  const optim::AdamOptions options;
  EXPECT_EQ(options.lr, 1e-3);
  EXPECT_EQ(options.betas.first, 0.9);
  EXPECT_EQ(options.betas.second, 0.999);
  EXPECT_EQ(options.eps, 1e-8);
  EXPECT_EQ(options.weight_decay, 0);
  expect_torchs_steps(options);
}

TEST(Adam, RefusesSettingsOutOfRange) {
  const std::vector<Parameter> list{make_parameter({1})};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW((optim::Adam{list, {.lr = -0.1}}), ValueError);
  EXPECT_THROW((optim::Adam{list, {.betas = {1, 0.999}}}), ValueError);
  EXPECT_THROW((optim::Adam{list, {.betas = {0.9, 1}}}), ValueError);
  EXPECT_THROW((optim::Adam{list, {.betas = {-0.1, 0.9}}}), ValueError);
  EXPECT_THROW((optim::Adam{list, {.betas = {0.9, nan}}}), ValueError);
  EXPECT_THROW((optim::Adam{list, {.betas = {0.9, -0.1}}}), ValueError);
  EXPECT_THROW((optim::Adam{list, {.eps = -1e-8}}), ValueError);
  EXPECT_THROW((optim::Adam{list, {.weight_decay = -1}}), ValueError);
  optim::Adam adam{list};
  adam.options().eps = -1;
  EXPECT_THROW(adam.step(), ValueError);
}

}  // namespace adam_test
}  // namespace lockstep
