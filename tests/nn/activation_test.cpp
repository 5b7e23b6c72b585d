// SPDX-License-Identifier: Apache-2.0
#include <lockstep/module/concepts.hpp>
#include <lockstep/nn/activation.hpp>

#include <gtest/gtest.h>

#include <cmath>

#include "nn/support.hpp"

namespace lockstep {
namespace activation_test {

using testing::Values;
using testing::values_of;

static_assert(Module<nn::ReLU> && Module<nn::Tanh> && Module<nn::Sigmoid> &&
              Module<nn::LeakyReLU> && Module<nn::SiLU>);

const Values kValues{-2, 0, 0.5};

Tensor input() { return from_values(kValues, {3}); }

TEST(Activation, ReLU) {
  EXPECT_EQ(values_of(nn::ReLU{}(input())), (Values{0, 0, 0.5}));
  EXPECT_EQ(values_of(nn::ReLU{}.forward(input())), (Values{0, 0, 0.5}));
}

TEST(Activation, Tanh) {
  const Values values = values_of(nn::Tanh{}(input()));
  for (std::size_t i = 0; i < kValues.size(); ++i) {
    EXPECT_NEAR(values[i], std::tanh(kValues[i]), 1e-15);
  }
}

TEST(Activation, Sigmoid) {
  const Values values = values_of(nn::Sigmoid{}(input()));
  for (std::size_t i = 0; i < kValues.size(); ++i) {
    EXPECT_NEAR(values[i], 1 / (1 + std::exp(-kValues[i])), 1e-15);
  }
}

TEST(Activation, LeakyReLU) {
  EXPECT_EQ(values_of(nn::LeakyReLU{0.25}(input())), (Values{-0.5, 0, 0.5}));
  EXPECT_EQ(values_of(nn::LeakyReLU{}.forward(input())), (Values{-0.02, 0, 0.5}));
}

TEST(Activation, SiLU) {
  const Values values = values_of(nn::SiLU{}(input()));
  for (std::size_t i = 0; i < kValues.size(); ++i) {
    EXPECT_NEAR(values[i], kValues[i] / (1 + std::exp(-kValues[i])), 1e-15);
  }
}

TEST(Activation, NeedsNoInitializerInAPlainStruct) {
  struct Net {
    nn::ReLU relu;
    nn::LeakyReLU leaky_relu;
    nn::GELU gelu;
  };
  EXPECT_EQ(Net{}.gelu.approximate, GeluApproximation::none);
}

TEST(Activation, HasNoParameters) {
  EXPECT_TRUE(parameters(nn::LeakyReLU{}).empty());
  EXPECT_TRUE(parameters(nn::SiLU{}).empty());
  EXPECT_TRUE(parameters(nn::ReLU{}).empty());
  EXPECT_TRUE(parameters(nn::Tanh{}).empty());
  EXPECT_TRUE(parameters(nn::Sigmoid{}).empty());
}

}  // namespace activation_test
}  // namespace lockstep
