// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/inference_mode.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/nn/init.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace lockstep {
namespace init_test {

namespace init = nn::init;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<double> values_of(const Tensor& tensor) {
  const Tensor host = empty(tensor.sizes(), {.dtype = Dtype::f64});
  detail::copy_into(host, tensor);
  const double* data = host.const_data_ptr<double>();
  return {data, data + host.numel()};
}

struct Moments {
  double least, greatest, mean, deviation;
};

Moments moments_of(const Tensor& tensor) {
  const std::vector<double> values = values_of(tensor);
  const auto count = static_cast<double>(values.size());
  Moments moments{kInfinity, -kInfinity, 0, 0};
  for (const double value : values) {
    moments.least = std::min(moments.least, value);
    moments.greatest = std::max(moments.greatest, value);
    moments.mean += value / count;
  }
  for (const double value : values) {
    moments.deviation += (value - moments.mean) * (value - moments.mean) / count;
  }
  moments.deviation = std::sqrt(moments.deviation);
  return moments;
}

// The seed is fixed, so that the limits (five deviations and more) hold always or never.
void expect_uniform(const Tensor& tensor, double low, double high) {
  const auto [least, greatest, mean, deviation] = moments_of(tensor);
  const double width = high - low;
  EXPECT_GE(least, low);
  EXPECT_LE(greatest, high);
  EXPECT_LT(least, low + 0.01 * width);
  EXPECT_GT(greatest, high - 0.01 * width);
  EXPECT_NEAR(mean, (low + high) / 2, 0.02 * width);
  EXPECT_NEAR(deviation, width / std::sqrt(12.0), 0.01 * width);
}

void expect_normal(const Tensor& tensor, double mean, double deviation) {
  const Moments moments = moments_of(tensor);
  EXPECT_NEAR(moments.mean, mean, 0.05 * deviation);
  EXPECT_NEAR(moments.deviation, deviation, 0.05 * deviation);
  EXPECT_GT(moments.greatest, mean + 2.5 * deviation);
  EXPECT_LT(moments.least, mean - 2.5 * deviation);
}

class Init : public ::testing::Test {
 protected:
  void SetUp() override { manual_seed(1); }
};

TEST_F(Init, CountsConnectionsOfALayer) {
  const auto [fan_in, fan_out] = init::calculate_fan_in_and_fan_out(empty({3, 5}));
  EXPECT_EQ(fan_in, 5);
  EXPECT_EQ(fan_out, 3);
}

TEST_F(Init, CountsConnectionsThroughAKernel) {
  const auto [fan_in, fan_out] = init::calculate_fan_in_and_fan_out(empty({32, 4, 5, 3}));
  EXPECT_EQ(fan_in, 4 * 15);
  EXPECT_EQ(fan_out, 32 * 15);
}

TEST_F(Init, NamesTheShapeThatHasNoFans) {
  try {
    init::calculate_fan_in_and_fan_out(empty({7}));
    FAIL() << "nothing was thrown";
  } catch (const ValueError& error) {
    EXPECT_NE(std::string(error.what()).find("at least 2 dimensions, got shape [7]"),
              std::string::npos)
        << error.what();
  }
  EXPECT_THROW(init::kaiming_uniform_(empty({7})), ValueError);
  EXPECT_THROW(init::xavier_normal_(empty({})), ValueError);
}

TEST_F(Init, HasTorchsGains) {
  EXPECT_EQ(init::calculate_gain(init::Nonlinearity::linear), 1);
  EXPECT_EQ(init::calculate_gain(init::Nonlinearity::sigmoid), 1);
  EXPECT_DOUBLE_EQ(init::calculate_gain(init::Nonlinearity::tanh), 5.0 / 3.0);
  EXPECT_DOUBLE_EQ(init::calculate_gain(init::Nonlinearity::relu), std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(init::calculate_gain(init::Nonlinearity::leaky_relu, 1), 1);
}

TEST_F(Init, Uniform) {
  const Tensor tensor = empty({40, 100});
  EXPECT_TRUE(init::uniform_(tensor, -3, 1).is_same(tensor));
  expect_uniform(tensor, -3, 1);
  expect_uniform(init::uniform_(empty({4000})), 0, 1);
  EXPECT_THROW(init::uniform_(tensor, 0, 1e300), DtypeError);
}

TEST_F(Init, Normal) {
  expect_normal(init::normal_(empty({4000}), 5, 2), 5, 2);
  expect_normal(init::normal_(empty({4000})), 0, 1);
}

TEST_F(Init, ZerosAndOnes) {
  const Tensor tensor = empty({2, 2}, {.dtype = Dtype::i64});
  EXPECT_EQ(values_of(init::ones_(tensor)), (std::vector<double>{1, 1, 1, 1}));
  EXPECT_EQ(values_of(init::zeros_(tensor)), (std::vector<double>{0, 0, 0, 0}));
}

// gain = √(2 / (1 + a²)), bound = gain · √(3 / fan).
TEST_F(Init, KaimingUniform) {
  const Tensor weight = empty({50, 100});
  expect_uniform(init::kaiming_uniform_(weight), -std::sqrt(6.0 / 100), std::sqrt(6.0 / 100));
  expect_uniform(init::kaiming_uniform_(weight, std::sqrt(5.0)), -0.1, 0.1);
  const double bound = 5.0 / 3.0 * std::sqrt(3.0 / 50);
  expect_uniform(
      init::kaiming_uniform_(weight, 0, init::FanMode::fan_out, init::Nonlinearity::tanh), -bound,
      bound);
}

TEST_F(Init, KaimingNormal) {
  const Tensor weight = empty({20, 10, 5, 5});
  expect_normal(init::kaiming_normal_(weight, 0, init::FanMode::fan_in, init::Nonlinearity::relu),
                0, std::sqrt(2.0 / 250));
  expect_normal(init::kaiming_normal_(weight, 0, init::FanMode::fan_out), 0, std::sqrt(2.0 / 500));
}

TEST_F(Init, Xavier) {
  const Tensor weight = empty({50, 100});
  expect_uniform(init::xavier_uniform_(weight), -std::sqrt(6.0 / 150), std::sqrt(6.0 / 150));
  expect_uniform(init::xavier_uniform_(weight, 2), -2 * std::sqrt(6.0 / 150),
                 2 * std::sqrt(6.0 / 150));
  expect_normal(init::xavier_normal_(weight), 0, std::sqrt(2.0 / 150));
  expect_normal(init::xavier_normal_(weight, 0.5), 0, 0.5 * std::sqrt(2.0 / 150));
}

TEST_F(Init, TheSeedDecidesOnEveryDeviceAndDtype) {
  const Tensor host = init::uniform_(empty({100}));
  manual_seed(1);
  const Tensor device = init::uniform_(empty({100}, {.device = "cpu:1"}));
  manual_seed(1);
  const Tensor precise = init::uniform_(empty({100}, {.dtype = Dtype::f64}));
  EXPECT_EQ(values_of(host), values_of(device));
  const std::vector<double> rounded = values_of(host);
  const std::vector<double> exact = values_of(precise);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    EXPECT_EQ(static_cast<double>(static_cast<float>(exact[i])), rounded[i]);
  }
  EXPECT_NE(values_of(init::uniform_(empty({100}))), rounded);
}

TEST_F(Init, DrawsFromTheGeneratorGiven) {
  Generator mine(7);
  Generator same(7);
  const std::vector<double> first = values_of(init::kaiming_normal_(
      empty({4, 4}), 0, init::FanMode::fan_in, init::Nonlinearity::relu, mine));
  init::uniform_(empty({10}));
  EXPECT_EQ(first, values_of(init::kaiming_normal_(empty({4, 4}), 0, init::FanMode::fan_in,
                                                   init::Nonlinearity::relu, same)));
}

TEST_F(Init, OverwritesAParameterWithoutRecording) {
  const Parameter parameter(zeros({4, 4}));
  const std::uint64_t before = parameter.version();
  init::xavier_uniform_(parameter);
  EXPECT_GT(parameter.version(), before);
  EXPECT_TRUE(parameter.is_leaf());
  EXPECT_TRUE(parameter.requires_grad());
}

TEST_F(Init, TakesATensorWithStridesAndAnEmptyOne) {
  const Tensor base = zeros({2, 3}, {.dtype = Dtype::f64});
  init::normal_(detail::make_view(base, {3, 2}, {1, 3}, 0));
  for (const double value : values_of(base)) EXPECT_NE(value, 0);
  EXPECT_EQ(init::kaiming_uniform_(empty({3, 0})).numel(), 0);
  EXPECT_EQ(init::xavier_normal_(empty({0, 0})).numel(), 0);
}

TEST_F(Init, RefusesBadArguments) {
  const Tensor tensor = zeros({2, 2});
  EXPECT_THROW(init::uniform_(tensor, 1, 0), ValueError);
  EXPECT_THROW(init::uniform_(tensor, 0, kInfinity), ValueError);
  EXPECT_THROW(init::normal_(tensor, 0, -1), ValueError);
  EXPECT_THROW(init::xavier_normal_(tensor, -1), ValueError);
  EXPECT_THROW(init::normal_(zeros({2}, {.dtype = Dtype::i64})), DtypeError);
  EXPECT_EQ(values_of(tensor), (std::vector<double>{0, 0, 0, 0}));
}

// As the members of Tensor that change its elements (ops/inplace.hpp).
TEST_F(Init, RefusesATensorThatCannotBeChanged) {
  const Tensor repeated = zeros({1, 3}).expand({2, 3});
  EXPECT_THROW(init::normal_(repeated), ValueError);
  EXPECT_THROW(init::ones_(repeated), ValueError);
  Tensor made;
  {
    const InferenceModeGuard guard;
    made = zeros({3});
    init::zeros_(made);
  }
  EXPECT_THROW(init::uniform_(made), AutogradError);
  EXPECT_THROW(init::ones_(made), AutogradError);
  EXPECT_EQ(values_of(repeated), std::vector<double>(6, 0));
  EXPECT_EQ(values_of(made), std::vector<double>(3, 0));
}

}  // namespace init_test
}  // namespace lockstep
