// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/clone.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/optim/adam.hpp>
#include <lockstep/optim/adamw.hpp>
#include <lockstep/optim/lr_scheduler.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/optim/sparse_adam.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "optim/parameters.hpp"
#include "support/expect_error.hpp"

namespace lockstep {
namespace groups_test {

using testing::give_gradient;
using testing::make_parameter;
using testing::throws;
using testing::Values;
using testing::values_of;

struct Part {
  Parameter weight = make_parameter({1, 2});
  Parameter bias = make_parameter({3});
};

struct Net {
  Part body;
  Part head;
};

Values all_values(const Net& net) {
  Values result;
  for (const Parameter& parameter : parameters(net)) {
    for (const double value : values_of(parameter)) result.push_back(value);
  }
  return result;
}

// Gives gradients that depend on the step and on the values.
void give_gradients(const Net& net, int step) {
  for (const Parameter& parameter : parameters(net)) {
    Values gradient = values_of(parameter);
    for (double& value : gradient) value = std::cos(step + value);
    give_gradient(parameter, gradient);
  }
}

TEST(FrozenParameters, AreSkippedUntilTheyAreThawed) {
  const Net net;
  for (const Parameter& parameter : parameters(net.body)) parameter.requires_grad_(false);
  optim::SGD sgd{parameters(net), {.lr = 1, .momentum = 0.5}};
  const auto step = [&] {
    Tensor loss = net.head.weight.sum() + net.head.bias.sum();
    for (const Parameter& parameter : parameters(net.body)) loss = loss + parameter.sum();
    sgd.zero_grad();
    loss.backward();
    sgd.step();
  };
  step();
  EXPECT_EQ(all_values(net), (Values{1, 2, 3, 0, 1, 2}));
  for (const Parameter& parameter : parameters(net.body)) parameter.requires_grad_();
  step();
  EXPECT_EQ(all_values(net), (Values{0, 1, 2, -1.5, -0.5, 0.5})) << "momentum from 1 and from 0";
  EXPECT_EQ(sgd.state_dict().size(), 6 + 4U);
}

// Three steps of one optimiser with two groups, and of two optimisers.
template <class Optimizer, class Group, class Options>
void expect_as_two_optimizers(const Group& body, const Options& of_body, const Options& of_head) {
  const Net grouped;
  const Net apart;
  Group first = body;
  first.params = parameters(grouped.body);
  Optimizer both{{first, {.params = parameters(grouped.head)}}, of_head};
  Optimizer body_alone{parameters(apart.body), of_body};
  Optimizer head_alone{parameters(apart.head), of_head};
  for (int step = 0; step < 3; ++step) {
    give_gradients(grouped, step);
    give_gradients(apart, step);
    both.step();
    body_alone.step();
    head_alone.step();
  }
  EXPECT_EQ(all_values(grouped), all_values(apart));
  const Net fresh;
  EXPECT_NE(values_of(grouped.body.weight), values_of(grouped.head.weight));
}

TEST(ParameterGroups, StepAsOptimizersOfTheirOwn) {
  using namespace optim;
  expect_as_two_optimizers<SGD>(
      SGDGroup{.lr = 0.01, .momentum = 0.5, .weight_decay = 0.1},
      SGDOptions{.lr = 0.01, .momentum = 0.5, .dampening = 0.25, .weight_decay = 0.1},
      SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.25});
  expect_as_two_optimizers<SGD>(
      SGDGroup{.dampening = 0, .nesterov = true},
      SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0, .nesterov = true},
      SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.25});
  expect_as_two_optimizers<Adam>(
      AdamGroup{.betas = {{0.5, 0.6}}, .eps = 1e-2},
      AdamOptions{.lr = 0.1, .betas = {0.5, 0.6}, .eps = 1e-2, .weight_decay = 0.3},
      AdamOptions{.lr = 0.1, .weight_decay = 0.3});
  expect_as_two_optimizers<AdamW>(AdamWGroup{.lr = 0.2, .weight_decay = 0},
                                  AdamWOptions{.lr = 0.2, .weight_decay = 0},
                                  AdamWOptions{.lr = 0.1});
}

TEST(ParameterGroups, AreWrittenAsStructs) {
  const Net net;
  optim::SparseAdam one{{{.params = parameters(net.body), .lr = 0.5}}};
  EXPECT_EQ(one.lr(), 0.5);
  EXPECT_EQ(one.options().eps, optim::SparseAdamOptions{}.eps);

  optim::SGD sgd{{{.params = named_parameters(net.body), .lr = 0.01},
                  {.params = {net.head.weight}, .weight_decay = 0.5},
                  {.params = {}}},
                 {.lr = 0.1, .momentum = 0.9}};
  ASSERT_EQ(sgd.group_count(), 3U);
  EXPECT_EQ(sgd.parameters().size(), 3U);
  ASSERT_EQ(sgd.parameters(1).size(), 1U);
  EXPECT_TRUE(sgd.parameters(1)[0].is_same(net.head.weight));
  EXPECT_TRUE(sgd.parameters(2).empty());
  EXPECT_EQ(sgd.lr(), 0.01);
  EXPECT_EQ(sgd.lr(1), 0.1);
  EXPECT_EQ(sgd.options(0).momentum, 0.9);
  EXPECT_EQ(sgd.options(0).weight_decay, 0);
  EXPECT_EQ(sgd.options(1).weight_decay, 0.5);
  give_gradient(net.head.weight, {0, 0});
  sgd.step();
  EXPECT_EQ(values_of(net.head.weight), (Values{0.95, 1.9}));
  EXPECT_TRUE(throws<IndexError>([&] { (void)sgd.lr(3); }, "SGD: group 3", "there are 3"));
  EXPECT_TRUE(throws<IndexError>([&] { (void)sgd.initial_lr(3); }, "SGD: group 3"));
  EXPECT_TRUE(throws<IndexError>([&] { (void)sgd.options(3); }, "SGD: group 3"));
  EXPECT_TRUE(throws<IndexError>([&] { (void)std::as_const(sgd).options(3); }, "SGD: group 3"));
  EXPECT_TRUE(throws<IndexError>([&] { (void)sgd.parameters(3); }, "SGD: group 3"));
}

TEST(ParameterGroups, MayBeWithoutParameters) {
  const Net net;
  optim::SGD sgd{{{.params = {}}, {.params = {net.head.bias}, .lr = 0.5}}, {.lr = 1}};
  give_gradient(net.head.bias, {1});
  sgd.step();
  EXPECT_EQ(values_of(net.head.bias), Values{2.5});
  EXPECT_TRUE(throws<ValueError>(
      [] {
        optim::SGD{{{.params = {}}, {.params = {}}}, {.lr = 1}};
      },
      "SGD: the list of parameters is empty"));
}

TEST(ParameterGroups, CanBeAddedAfterTheFirstSteps) {
  const Net net;
  optim::SGD sgd{parameters(net.head), {.lr = 1, .momentum = 0.5}};
  give_gradient(net.head.bias, {1});
  sgd.step();
  sgd.set_lr(0.25);
  sgd.add_param_group({.params = parameters(net.body), .momentum = 0});
  EXPECT_EQ(sgd.lr(0), 0.25);
  EXPECT_EQ(sgd.lr(1), 1) << "what the optimiser was made with";
  give_gradient(net.body.bias, {1});
  sgd.step();
  EXPECT_EQ(values_of(net.head.bias), Values{1.625});
  EXPECT_EQ(values_of(net.body.bias), Values{2});
}

TEST(ParameterGroups, WhatCannotBeAddedChangesNothing) {
  const Net net;
  optim::SGD sgd{parameters(net.head), {.lr = 1}};
  const Parameter fresh = make_parameter({1});
  EXPECT_TRUE(throws<ValueError>(
      [&] {
        sgd.add_param_group({.params = {fresh, net.head.bias}});
      },
      "SGD: parameter 1 of group 1 of shape [1] is in group 0 already"));
  EXPECT_TRUE(throws<ValueError>([&] { sgd.add_param_group({.params = {fresh}, .lr = -1}); },
                                 "SGD: expected lr to be"));
  EXPECT_TRUE(throws<ValueError>(
      [&] {
        sgd.add_param_group({.params = {fresh, Tensor()}});
      },
      "SGD: parameter 1 of group 1 is undefined"));
  EXPECT_EQ(sgd.group_count(), 1U);
  EXPECT_EQ(sgd.parameters().size(), 2U);
  sgd.add_param_group({.params = {fresh}});
  give_gradient(fresh, {1});
  sgd.step();
  EXPECT_EQ(values_of(fresh), Values{0});
  EXPECT_TRUE(throws<ValueError>([&] { optim::Adam{std::vector<optim::AdamGroup>{}}; },
                                 "the list of parameters is empty"));
  EXPECT_TRUE(throws<ValueError>(
      [&] {
        optim::SGD{{{.params = {fresh}, .lr = 1}}, {.lr = -1}};
      },
      "SGD: expected lr to be"));
  EXPECT_TRUE(throws<ValueError>(
      [&] {
        optim::Adam{{{.params = {fresh, Tensor()}}, {.params = parameters(net)}}};
      },
      "Adam: parameter 1 of group 0 is undefined"));
}

TEST(ParameterGroups, MessagesNameTheParameterIfItCameWithAName) {
  const Net net;
  const auto named = named_parameters(net);
  optim::SGD sgd{named, {.lr = 1}};
  give_gradient(net.head.weight, {1, 1});
  net.head.weight.set_data(make_parameter({1, 2, 3}));
  EXPECT_TRUE(throws<ShapeError>([&] { sgd.step(); },
                                 "SGD: parameter \"head.weight\" is of shape [3], but its"));
  optim::SGD groups{{{.params = parameters(net.body)}, {.params = named_parameters(net.head)}}};
  EXPECT_TRUE(throws<ShapeError>([&] { groups.step(); }, "parameter \"weight\" of group 1 is of"));
  optim::SGD places{{{.params = parameters(net.body)}, {.params = parameters(net.head)}}};
  EXPECT_TRUE(throws<ShapeError>([&] { places.step(); }, "SGD: parameter 0 of group 1 is of"));

  net.head.weight.set_grad({});
  give_gradient(net.body.bias, {1});
  optim::SparseAdam sparse{named};
  EXPECT_TRUE(throws<ValueError>([&] { sparse.step(); }, "that of parameter \"body.bias\", of"));
  const Tensor sum = net.body.bias + net.head.bias;
  EXPECT_TRUE(throws<AutogradError>(
      [&] {
        optim::SGD{std::vector<NamedTensor>{{"sum", sum}}};
      },
      "SGD: parameter \"sum\" of shape [1] is the result of a recorded operation"));
}

TEST(ParameterGroups, SettingsCanBeChangedAndAreCheckedByTheStep) {
  const Net net;
  optim::SGD sgd{{{.params = parameters(net.body)}, {.params = parameters(net.head)}}, {.lr = 1}};
  sgd.options(1).weight_decay = 0.5;
  for (const Parameter& parameter : parameters(net)) parameter.set_grad(zeros_like(parameter));
  sgd.step();
  EXPECT_EQ(all_values(net), (Values{1, 2, 3, 0.5, 1, 1.5}));
  sgd.options(1).momentum = -1;
  sgd.options(0).weight_decay = 1;
  EXPECT_TRUE(throws<ValueError>([&] { sgd.step(); }, "SGD: expected momentum to be"));
  EXPECT_EQ(all_values(net), (Values{1, 2, 3, 0.5, 1, 1.5}));

  sgd.set_lrs({0.5, 2});
  EXPECT_EQ(sgd.lr(0), 0.5);
  EXPECT_EQ(sgd.lr(1), 2);
  EXPECT_THROW(sgd.set_lrs({1, -1}), ValueError);
  EXPECT_TRUE(throws<ValueError>([&] { sgd.set_lrs({1}); }, "each of 2 groups, got 1"));
  EXPECT_EQ(sgd.lr(0), 0.5);
  sgd.set_lr(3);
  EXPECT_EQ(sgd.lr(0), 3);
  EXPECT_EQ(sgd.lr(1), 3);
}

optim::Adam adam_of(const Net& net, double lr) {
  return optim::Adam{{{.params = parameters(net.body), .lr = lr, .weight_decay = lr},
                      {.params = parameters(net.head)}}};
}

TEST(ParameterGroups, TrainingGoesOnFromTheStateWithTheSameBits) {
  const Net net;
  optim::Adam adam = adam_of(net, 0.25);
  give_gradients(net, 0);
  adam.step();
  const StateDict state = clone(adam.state_dict());
  const Net again = clone(net);
  optim::Adam resumed = adam_of(again, 7);
  resumed.load_state_dict(state);
  for (int step = 1; step < 3; ++step) {
    give_gradients(net, step);
    give_gradients(again, step);
    adam.step();
    resumed.step();
  }
  EXPECT_EQ(all_values(again), all_values(net));
  EXPECT_EQ(resumed.lr(0), 0.25);
  EXPECT_EQ(resumed.lr(1), 1e-3);
  EXPECT_EQ(values_of(state[0].tensor), (Values{0, 1}));
  ASSERT_EQ(state[6].name, "param_groups.1.params");
  EXPECT_EQ(values_of(state[6].tensor), (Values{2, 3}));

  optim::Adam alone{parameters(net)};
  EXPECT_TRUE(throws<ModuleError>([&] { alone.load_state_dict(state); },
                                  "param_groups.0.params has to list 4 parameters",
                                  "unexpected: param_groups.1.params"));
  EXPECT_TRUE(throws<ModuleError>([&] { resumed.load_state_dict(alone.state_dict()); },
                                  "missing: param_groups.1.lr"));
}

TEST(ParameterGroups, AStateThatWasSavedWithoutGroupsIsLoaded) {
  const Net net;
  optim::SGD sgd{parameters(net.head)};
  sgd.load_state_dict({{"param_groups.0.params", arange(2)},
                       {"param_groups.0.lr", scalar_tensor(1.0)},
                       {"param_groups.0.momentum", scalar_tensor(0.5)},
                       {"param_groups.0.dampening", scalar_tensor(0.0)},
                       {"param_groups.0.weight_decay", scalar_tensor(0.0)},
                       {"param_groups.0.nesterov", scalar_tensor(false)},
                       {"state.1.momentum_buffer", tensor({4.0})}});
  give_gradient(net.head.bias, {1});
  sgd.step();
  EXPECT_EQ(values_of(net.head.bias), Values{0});
}

TEST(LRScheduler, SetsTheRateOfEachGroup) {
  const Net net;
  const Parameter late = make_parameter({1});
  const auto make = [&] {
    return optim::SGD{{{.params = parameters(net.body), .lr = 8}, {.params = parameters(net.head)}},
                      {.lr = 2}};
  };
  const optim::StepLR schedule{.step_size = 1, .gamma = 0.5};
  optim::SGD sgd = make();
  optim::LRScheduler scheduler{sgd, schedule};
  scheduler.step();
  EXPECT_EQ(sgd.lr(0), 4);
  EXPECT_EQ(sgd.lr(1), 1);
  EXPECT_EQ(scheduler.last_lr(1), 1);
  sgd.add_param_group({.params = {late}, .lr = 16});
  EXPECT_EQ(sgd.lr(2), 16);
  EXPECT_TRUE(throws<IndexError>([&] { (void)scheduler.last_lr(2); }, "group 2", "there are 2"));
  const StateDict before = scheduler.state_dict();
  const StateDict of_sgd = clone(sgd.state_dict());
  scheduler.step();
  EXPECT_EQ(sgd.lr(0), 2);
  EXPECT_EQ(sgd.lr(2), 8) << "the change of this step alone";

  optim::SGD fresh = make();
  fresh.add_param_group({.params = {late}, .lr = 1});
  optim::LRScheduler again{fresh, schedule};
  again.load_state_dict(before);
  fresh.load_state_dict(of_sgd);
  again.step();
  for (const std::size_t group : {0U, 1U, 2U}) EXPECT_EQ(fresh.lr(group), sgd.lr(group)) << group;
  again.load_state_dict(scheduler.state_dict());
  again.step();
  scheduler.step();
  for (const std::size_t group : {0U, 1U, 2U}) EXPECT_EQ(fresh.lr(group), sgd.lr(group)) << group;

  optim::SGD alone{parameters(net), {.lr = 8}};
  optim::LRScheduler of_alone{alone, schedule};
  EXPECT_TRUE(throws<ModuleError>([&] { of_alone.load_state_dict(scheduler.state_dict()); },
                                  "unexpected: base_lr.1"));
  of_alone.load_state_dict(
      {{"last_epoch", scalar_tensor(std::int64_t{3})}, {"base_lr", scalar_tensor(16.0)}});
  EXPECT_EQ(alone.lr(), 2);
}

}  // namespace groups_test
}  // namespace lockstep
