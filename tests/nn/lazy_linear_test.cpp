// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/autograd/inference_mode.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/concepts.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/nn/lazy_linear.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/nn/sequential.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/random.hpp>

#include <gtest/gtest.h>

#include <vector>

#include "nn/support.hpp"
#include "support/expect_error.hpp"

namespace lockstep {
namespace lazy_linear_test {

using testing::f32;
using testing::Names;
using testing::parameter_names;
using testing::throws;
using testing::Values;
using testing::values_of;

static_assert(Module<nn::LazyLinear> && ForwardableWith<const nn::LazyLinear, Tensor>);

TEST(LazyLinear, HasItsNamesBeforeItsShapes) {
  const nn::LazyLinear layer{2, {.dtype = Dtype::f64, .device = "cpu:1"}};
  EXPECT_EQ(parameter_names(layer), (Names{"weight", "bias"}));
  EXPECT_TRUE(layer.weight.is_uninitialized() && layer.bias.is_uninitialized());
  EXPECT_TRUE(layer.weight.requires_grad() && layer.bias.requires_grad());
  EXPECT_EQ(layer.weight.dtype(), Dtype::f64);
  EXPECT_EQ(layer.bias.device(), Device("cpu:1"));
}

TEST(LazyLinear, TheFirstForwardDrawsWhatLinearWouldHaveDrawn) {
  manual_seed(3);
  const nn::Linear expected{4, 3, {.dtype = Dtype::f64, .device = "cpu:1"}};
  const nn::LazyLinear layer{3, {.dtype = Dtype::f64, .device = "cpu:1"}};
  manual_seed(3);
  const Tensor x = ones({2, 5, 4}, {.dtype = Dtype::f64, .device = "cpu:1"});
  const Tensor y = layer(x);
  EXPECT_EQ(layer.weight.sizes(), (Shape{3, 4}));
  EXPECT_EQ(layer.weight.device(), Device("cpu:1"));
  EXPECT_EQ(values_of(layer.weight), values_of(expected.weight));
  EXPECT_EQ(values_of(layer.bias), values_of(expected.bias));
  EXPECT_EQ(y.sizes(), (Shape{2, 5, 3}));
  EXPECT_EQ(values_of(y), values_of(expected(x)));
  // The second forward draws nothing.
  EXPECT_EQ(values_of(layer(x)), values_of(y));
}

TEST(LazyLinear, TheFirstForwardIsDifferentiable) {
  const nn::LazyLinear layer{1};
  const std::vector<Parameter> handles = parameters(layer);
  layer(f32({1, 2, 3, 4}, {2, 2})).sum().backward();
  EXPECT_EQ(values_of(handles[0].grad()), (Values{4, 6}));
  EXPECT_EQ(values_of(handles[1].grad()), (Values{2}));
}

TEST(LazyLinear, ADryRunWithoutGradientsInitializesForTraining) {
  const nn::LazyLinear a{1};
  const nn::LazyLinear b{1};
  {
    const NoGradGuard guard;
    a(zeros({1, 2}));
  }
  {
    const InferenceModeGuard guard;
    b(zeros({1, 2}));
  }
  for (const nn::LazyLinear& layer : {a, b}) {
    layer(f32({1, 2}, {1, 2})).sum().backward();
    EXPECT_EQ(values_of(layer.weight.grad()), (Values{1, 2}));
  }
}

TEST(LazyLinear, CanBeWithoutBias) {
  const nn::LazyLinear layer{2, {.bias = false}};
  EXPECT_EQ(parameter_names(layer), (Names{"weight"}));
  EXPECT_EQ(layer(zeros({1, 3})).sizes(), (Shape{1, 2}));
  EXPECT_FALSE(layer.bias.defined());
}

TEST(LazyLinear, StandsInASequence) {
  nn::Sequential net{nn::LazyLinear{4}, nn::LazyLinear{2}};
  EXPECT_EQ(net(ones({3, 7})).sizes(), (Shape{3, 2}));
  EXPECT_EQ(parameters(net)[0].sizes(), (Shape{4, 7}));
  EXPECT_EQ(parameters(net)[2].sizes(), (Shape{2, 4}));
}

TEST(LazyLinear, WhatWasLoadedIsNotDrawnAgain) {
  const nn::Linear trained{3, 2};
  const nn::LazyLinear layer{2};
  load_state_dict(layer, state_dict(trained));
  const Tensor x = f32({1, 2, 3}, {1, 3});
  EXPECT_EQ(values_of(layer(x)), values_of(trained(x)));
  // And the other way round, once it is initialised.
  const nn::Linear linear{3, 2};
  load_state_dict(linear, state_dict(layer));
  EXPECT_EQ(values_of(linear(x)), values_of(trained(x)));

  const nn::LazyLinear half{2};
  load_state_dict(half, {{"weight", trained.weight}}, false);
  EXPECT_TRUE(half.bias.is_uninitialized());
  half(x);
  EXPECT_EQ(values_of(half.weight), values_of(trained.weight));
  EXPECT_EQ(half.bias.sizes(), (Shape{2}));
}

TEST(LazyLinear, AnOptimizerIsMadeOnceItIsInitialized) {
  const nn::LazyLinear layer{1};
  EXPECT_TRUE(throws<ModuleError>([&] { optim::SGD(parameters(layer)); }, "uninitialized parameter",
                                  "call forward"));
  layer(zeros({1, 2}));
  optim::SGD sgd(parameters(layer), {.lr = 1});
  const Values before = values_of(layer.weight);
  layer(f32({1, 2}, {1, 2})).sum().backward();
  sgd.step();
  EXPECT_FLOAT_EQ(static_cast<float>(values_of(layer.weight)[1]),
                  static_cast<float>(before[1] - 2));
}

TEST(LazyLinear, AnInputThatDoesNotFitLeavesItAsItWas) {
  const nn::LazyLinear layer{2};
  EXPECT_TRUE(throws<ShapeError>([&] { layer(scalar_tensor(1.0F)); }, "LazyLinear",
                                 "at least 1 dimension"));
  EXPECT_TRUE(throws<ValueError>([&] { layer(zeros({3, 0})); }, "in_features", "0"));
  EXPECT_TRUE(layer.weight.is_uninitialized());
  layer(zeros({1, 3}));
  EXPECT_TRUE(throws<ShapeError>([&] { layer(zeros({1, 4})); }, "[1, 4]", "[2, 3]"));
  EXPECT_TRUE(throws<ValueError>([] { nn::LazyLinear{0}; }, "LazyLinear", "out_features"));
  EXPECT_TRUE(throws<DtypeError>([] { nn::LazyLinear(1, {.dtype = Dtype::i64}); }, "LazyLinear"));
}

}  // namespace lazy_linear_test
}  // namespace lockstep
