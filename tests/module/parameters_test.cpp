// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/inference_mode.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/sparse.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "module/layers.hpp"
#include "support/warnings.hpp"

namespace lockstep {
namespace parameters_test {

using testing::Names;
using testing::names_of;
using testing::Noise;
using testing::Norm;
using testing::Scale;
using testing::values_of;

struct Net {
  Scale scale;
  Norm norm{0.1F};
  Noise noise;

  Tensor forward(const Tensor& x) { return x; }
};

TEST(Parameters, AreHandlesOnTheModulesOwnTensors) {
  const Net net;
  const auto named = named_parameters(net);
  EXPECT_EQ(names_of(named), (Names{"scale.weight", "scale.bias", "norm.weight"}));
  EXPECT_TRUE(named[0].tensor.is_same(net.scale.weight));
  const auto plain = parameters(net);
  ASSERT_EQ(plain.size(), 3U);
  EXPECT_TRUE(plain[1].is_same(net.scale.bias));
  EXPECT_EQ(names_of(named_buffers(net)), (Names{"norm.running_mean"}));
  ASSERT_EQ(buffers(net).size(), 1U);
  EXPECT_TRUE(buffers(net)[0].is_same(net.norm.running_mean()));
}

TEST(Parameters, TiedOnesAreListedOnceUnderTheFirstName) {
  Net net;
  struct Tied {
    Net first, second;
    Parameter third;
  } tied{net, net, net.scale.weight};
  EXPECT_EQ(names_of(named_parameters(tied)),
            (Names{"first.scale.weight", "first.scale.bias", "first.norm.weight"}));
  EXPECT_EQ(names_of(named_buffers(tied)), (Names{"first.norm.running_mean"}));
}

TEST(Parameters, AManyMemberModuleKeepsItsOrder) {
  struct Slot {
    Parameter weight;
  };
  struct Wide {
    Slot a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, c0, c1, c2,
        c3, c4, c5, c6, c7, c8, c9, d0, d1, d2, d3, d4, d5, d6, d7, d8, d9;
  } wide;
  for (Slot* slot : {&wide.d9, &wide.b3, &wide.a0}) slot->weight = testing::parameter({1});
  EXPECT_EQ(names_of(named_parameters(wide)), (Names{"a0.weight", "b3.weight", "d9.weight"}));
}

TEST(Parameters, EveryModuleIsVisitedTheOuterFirst) {
  Net net;
  struct Layers {
    std::vector<Net> nets;
    int number;
  } layers{{net}, 1};
  Names paths;
  for_each_module(layers, [&](const std::string& path, auto&) { paths.push_back(path); });
  EXPECT_EQ(paths, (Names{"nets.0", "nets.0.scale", "nets.0.norm", "nets.0.noise"}));
  paths.clear();
  for_each_module(std::as_const(net),
                  [&](const std::string& path, const auto&) { paths.push_back(path); });
  EXPECT_EQ(paths, (Names{"", "scale", "norm", "noise"}));
}

TEST(Train, SetsEveryTrainingMember) {
  struct Outer {
    Net net;
    std::vector<std::shared_ptr<Noise>> noises{std::make_shared<Noise>()};
    std::pair<Noise, Noise> pair;  // trivially copyable, and yet walked
    bool training = true;
  } outer;
  eval(outer);
  EXPECT_FALSE(outer.training || outer.net.noise.training || outer.net.norm.is_training() ||
               outer.noises[0]->training || outer.pair.second.training);
  train(outer);
  EXPECT_TRUE(outer.training && outer.net.noise.training && outer.net.norm.is_training() &&
              outer.noises[0]->training && outer.pair.second.training);
}

TEST(ZeroGrad, DropsAllGradients) {
  const Net net;
  for (const Parameter& parameter : parameters(net)) parameter.set_grad(ones_like(parameter));
  const testing::CaughtWarnings warnings;
  zero_grad(net);
  for (const Parameter& parameter : parameters(net)) EXPECT_FALSE(parameter.grad().defined());
  EXPECT_EQ(warnings.count(), 0);
}

TEST(To, MovesEverythingInPlace) {
  struct Tied {
    Net net;
    Parameter tied = net.scale.weight;
    Tensor attribute = tensor({1.0F});
  } module;
  const Device device("cpu:1");
  const auto held = parameters(module);
  held[0].set_grad(ones_like(held[0]));
  to(module, device);
  EXPECT_EQ(held[0].device(), device);
  EXPECT_EQ(held[0].grad().device(), device);
  EXPECT_EQ(values_of(held[0].grad()), (std::vector<float>{1, 1}));
  EXPECT_EQ(values_of(module.net.scale.weight), (std::vector<float>{1, 2}));
  EXPECT_TRUE(module.net.scale.weight.is_same(held[0]));
  EXPECT_TRUE(module.tied.is_same(held[0]));
  EXPECT_TRUE(held[0].requires_grad() && held[0].is_leaf());
  EXPECT_EQ(module.net.norm.running_mean().device(), device);
  EXPECT_FALSE(module.net.norm.running_mean().requires_grad());
  EXPECT_EQ(module.attribute.device(), Device());
  to(module, Device());
  EXPECT_EQ(held[0].device(), Device());
}

TEST(To, ASparseBufferMovesNothing) {
  struct {
    Parameter weight{ones({2})};
    Buffer table;
  } module;
  const Tensor rows = from_values<std::int64_t>({3, 1}, {1, 2});
  module.table = Buffer(sparse_coo_tensor(rows, ones({2, 1}), {4, 1}));
  EXPECT_THROW(to(module, "cpu:1"), ValueError);
  EXPECT_EQ(module.weight.device(), Device());
  EXPECT_NO_THROW(to(module, Device()));
}

TEST(To, WhatCannotBeMovedLeavesEverythingWhereItWas) {
  struct {
    Parameter weight{ones({2})};
    Buffer last;
  } module;
  module.last = Buffer(module.weight.clone());
  EXPECT_THROW(to(module, "cpu:1"), AutogradError);
  EXPECT_EQ(module.weight.device(), Device());
  module.last = Buffer();
  struct {
    Parameter first{ones({2})};
    Parameter second{ones({2})};
  } pair;
  pair.second.set_grad(ones({2}));
  pair.second.set_data(ones({3}));
  EXPECT_THROW(to(pair, "cpu:1"), ShapeError);
  EXPECT_EQ(pair.first.device(), Device());
  EXPECT_EQ(pair.second.device(), Device());
}

TEST(To, GradientsMovedInInferenceModeCanBeChangedAfterwards) {
  const Scale scale;
  scale.weight.set_grad(ones(scale.weight.sizes()));
  {
    const InferenceModeGuard guard;
    to(scale, "cpu:0");
  }
  EXPECT_FALSE(scale.weight.grad().is_inference());
  scale.weight.grad().zero_();
}

TEST(To, LeavesWhatIsThereAlready) {
  const Net net;
  const float* before = net.scale.weight.const_data_ptr<float>();
  to(net, Device());
  EXPECT_EQ(net.scale.weight.const_data_ptr<float>(), before);
}

}  // namespace parameters_test
}  // namespace lockstep
