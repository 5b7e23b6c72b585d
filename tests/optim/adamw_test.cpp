// SPDX-License-Identifier: Apache-2.0
#include <lockstep/error.hpp>
#include <lockstep/optim/adam.hpp>
#include <lockstep/optim/adamw.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <vector>

#include "optim/parameters.hpp"
#include "support/expect_error.hpp"

namespace lockstep {
namespace adamw_test {

using testing::give_gradient;
using testing::make_parameter;
using testing::throws;
using testing::Values;
using testing::values_of;

const Values kStart{1.0, -2.0, 0.5, 3.0};
constexpr int kSteps = 6;

double gradient_at(int step, std::size_t i) {
  return std::cos(0.4 * step + 1.9 * static_cast<double>(i));
}

// torch.optim.AdamW's documented algorithm for one element, in plain arithmetic.
double expected_after(double value, std::size_t i, const optim::AdamWOptions& options) {
  const auto [beta1, beta2] = options.betas;
  double m = 0;
  double v = 0;
  for (int t = 1; t <= kSteps; ++t) {
    const double g = gradient_at(t, i);
    value -= options.lr * options.weight_decay * value;
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const double m_hat = m / (1 - std::pow(beta1, t));
    const double v_hat = v / (1 - std::pow(beta2, t));
    value -= options.lr * m_hat / (std::sqrt(v_hat) + options.eps);
  }
  return value;
}

template <class Optimizer, class Options>
Values trained(const Options& options, Dtype dtype = Dtype::f64, Device device = {}) {
  const Parameter parameter = make_parameter(kStart, dtype, device);
  Optimizer adam{std::vector<Parameter>{parameter}, options};
  for (int t = 1; t <= kSteps; ++t) {
    Values gradient(kStart.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = gradient_at(t, i);
    give_gradient(parameter, gradient);
    adam.step();
  }
  return values_of(parameter);
}

TEST(AdamW, TakesTorchsSteps) {
  for (const double decay : {0.01, 0.5}) {
    const optim::AdamWOptions options{.lr = 0.1, .weight_decay = decay};
    const Values f64 = trained<optim::AdamW>(options);
    const Values f32 = trained<optim::AdamW>(options, Dtype::f32);
    for (std::size_t i = 0; i < kStart.size(); ++i) {
      const double expected = expected_after(kStart[i], i, options);
      EXPECT_NEAR(f64[i], expected, 1e-14) << "element " << i;
      EXPECT_NEAR(f32[i], expected, 5e-6) << "element " << i;
    }
    testing::expect_same_on_both(trained<optim::AdamW>(options, Dtype::f64, "cpu:1"), f64,
                                 Dtype::f64);
  }
}

TEST(AdamW, WithoutDecayItIsAdam) {
  EXPECT_EQ(trained<optim::AdamW>(optim::AdamWOptions{.lr = 0.1, .weight_decay = 0}),
            trained<optim::Adam>(optim::AdamOptions{.lr = 0.1}));
}

TEST(AdamW, DecaysAParameterWhoseGradientIsZero) {
  const Parameter parameter = make_parameter({8});
  optim::AdamW adam{std::vector{parameter}, {.lr = 0.5, .weight_decay = 0.5}};
  give_gradient(parameter, {0});
  adam.step();
  EXPECT_EQ(values_of(parameter), Values{6});
}

TEST(AdamW, HasTorchsDefaults) {
  const optim::AdamWOptions options;
  EXPECT_EQ(options.lr, 1e-3);
  EXPECT_EQ(options.betas.first, 0.9);
  EXPECT_EQ(options.betas.second, 0.999);
  EXPECT_EQ(options.eps, 1e-8);
  EXPECT_EQ(options.weight_decay, 1e-2);
}

TEST(AdamW, RefusesSettingsUnderItsOwnName) {
  const std::vector<Parameter> list{make_parameter({1})};
  EXPECT_TRUE(throws<ValueError>([&] { optim::AdamW(list, {.weight_decay = -1}); },
                                 "AdamW: expected weight_decay"));
  EXPECT_TRUE(throws<ValueError>([&] { optim::AdamW(list, {.betas = {1, 0.9}}); }, "AdamW: "));
}

}  // namespace adamw_test
}  // namespace lockstep
