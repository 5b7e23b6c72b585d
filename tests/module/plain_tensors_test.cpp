// SPDX-License-Identifier: Apache-2.0
#include <lockstep/module/parameters.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/expect_error.hpp"

namespace lockstep {
namespace plain_tensors_test {

using testing::throws;

struct Block {
  Tensor scale;
  Tensor forward(const Tensor& x) { return x * scale; }
};

struct Net {
  Parameter weight{ones({2})};
  std::vector<Block> blocks{1};
  std::vector<Tensor> list;
  std::optional<Tensor> maybe;
  std::shared_ptr<Tensor> pointer;
  std::pair<int, Tensor> second{0, {}};
  std::map<std::pair<int, int>, Tensor> table;

  Tensor forward(const Tensor& x) { return x; }
};

Tensor leaf() { return ones({2}, {.requires_grad = true}); }

void expect_refused(const Net& net, const std::string& path) {
  const std::string message =
      "the member \"" + path +
      "\" is a plain Tensor that requires grad, which is neither trained "
      "nor moved nor replicated nor saved with the module: make it a "
      "Parameter (a Buffer, if it is not trained), or detach() what is only "
      "kept";
  EXPECT_TRUE(throws<ModuleError>([&] { parameters(net); }, message));
  EXPECT_TRUE(throws<ModuleError>([&] { named_parameters(net); }, message));
  EXPECT_TRUE(throws<ModuleError>([&] { detail::check_parameters(net); }, message));
}

TEST(PlainTensors, ALeafThatRequiresGradIsNamed) {
  Net net;
  net.blocks[0].scale = leaf();
  expect_refused(net, "blocks.0.scale");
  net.blocks[0].scale = {};
  net.list = {Tensor(), ones({2}), leaf()};
  expect_refused(net, "list.2");
  net.list = {};
  net.maybe = leaf();
  expect_refused(net, "maybe");
  net.maybe = {};
  net.pointer = std::make_shared<Tensor>(leaf());
  expect_refused(net, "pointer");
  net.pointer = {};
  net.second.second = leaf();
  expect_refused(net, "second.1");
  net.second.second = {};
  net.table[{0, 1}] = leaf();
  expect_refused(net, "table");
}

TEST(PlainTensors, WhatForwardKeepsAndWhatNeedsNoGradientIsLeftAlone) {
  Net net;
  net.blocks[0].scale = ones({2});
  net.list = {net.weight * 2.0, leaf().detach()};
  net.maybe.emplace();
  EXPECT_TRUE(net.list[0].requires_grad());
  EXPECT_EQ(parameters(net).size(), 1U);
  EXPECT_EQ(named_parameters(net).size(), 1U);
  EXPECT_NO_THROW(detail::check_parameters(net));
}

TEST(PlainTensors, AStepDoesNotAskForThem) {
  Net net;
  net.list = {leaf()};
  EXPECT_NO_THROW(zero_grad(net));
  EXPECT_EQ(detail::tensors_of(net).size(), 1U);
}

}  // namespace plain_tensors_test
}  // namespace lockstep
