// SPDX-License-Identifier: Apache-2.0
#include <lockstep/error.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/nn/dropout.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/nn/sequential.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <algorithm>

#include "nn/support.hpp"

namespace lockstep {
namespace dropout_test {

using testing::message_of;
using testing::Names;
using testing::parameter_names;
using testing::Values;
using testing::values_of;

static_assert(Module<nn::Dropout> && ForwardableWith<const nn::Dropout, Tensor>);

TEST(Dropout, DropsInTrainingAlone) {
  nn::Dropout layer;
  EXPECT_EQ(layer.p, 0.5);
  EXPECT_TRUE(layer.training);
  const Values y = values_of(layer(ones({200})));
  EXPECT_EQ(std::count(y.begin(), y.end(), 0) + std::count(y.begin(), y.end(), 2), 200);
  EXPECT_GT(std::count(y.begin(), y.end(), 0), 0);
  EXPECT_GT(std::count(y.begin(), y.end(), 2), 0);
  eval(layer);
  EXPECT_EQ(values_of(layer(ones({200}))), Values(200, 1));
  train(layer);
  EXPECT_TRUE(layer.training);
}

TEST(Dropout, NeedsNoInitializerInAPlainStruct) {
  struct Net {
    nn::Dropout drop;
  };
  EXPECT_EQ(Net{}.drop.p, 0.5);
}

TEST(Dropout, IsFoundWithinOtherModules) {
  struct Net {
    nn::Sequential<nn::Linear, nn::Dropout> layers{nn::Linear{2, 2}, nn::Dropout{0.25}};
    nn::Dropout last{1};
  };
  Net net;
  eval(net);
  EXPECT_FALSE(net.layers.get<1>().training || net.last.training);
  EXPECT_EQ(parameter_names(net), (Names{"layers.0.weight", "layers.0.bias"}));
}

TEST(Dropout, RefusesWhatIsNoProbability) {
  EXPECT_EQ(message_of<ValueError>([] { nn::Dropout{-1}; }),
            "Dropout: dropout probability has to be between 0 and 1, but got -1");
}

}  // namespace dropout_test
}  // namespace lockstep
