// SPDX-License-Identifier: Apache-2.0
#include <lockstep/error.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/optim/adam.hpp>
#include <lockstep/optim/adamw.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/sparse.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "optim/parameters.hpp"
#include "support/expect_error.hpp"

namespace lockstep {
namespace state_test {

using testing::give_gradient;
using testing::make_parameter;
using testing::throws;
using testing::Values;
using testing::values_of;
using Names = std::vector<std::string>;

Names names_of(const StateDict& dict) {
  Names names;
  for (const NamedTensor& entry : dict) names.push_back(entry.name);
  return names;
}

void set(StateDict& dict, const std::string& name, const Tensor& tensor) {
  const auto found = std::find_if(dict.begin(), dict.end(),
                                  [&](const NamedTensor& entry) { return entry.name == name; });
  ASSERT_NE(found, dict.end()) << name;
  found->tensor = tensor;
}

std::vector<Parameter> two_parameters(Device device = {}) {
  return {make_parameter({1, 2}, Dtype::f32, device), make_parameter({3}, Dtype::f32, device)};
}

// Steps with gradients that depend on the step and on the values.
template <class Optimizer>
void train(Optimizer& optimizer, int first, int last) {
  for (int step = first; step < last; ++step) {
    for (const Tensor& parameter : optimizer.parameters()) {
      Values gradient = values_of(parameter);
      for (double& value : gradient) value = std::cos(step + value);
      give_gradient(parameter, gradient);
    }
    optimizer.step();
  }
}

// Six steps, against three and three more of a fresh optimiser with other settings on another
// device.
template <class Optimizer, class Options>
void expect_same_bits(const Options& options) {
  Optimizer whole{two_parameters(), options};
  train(whole, 0, 6);

  Optimizer first{two_parameters(), options};
  train(first, 0, 3);
  const auto moved = two_parameters("cpu:1");
  for (std::size_t i = 0; i < 2; ++i) detail::copy_into(moved[i], first.parameters()[i]);
  Optimizer second{moved};
  second.load_state_dict(first.state_dict());
  train(first, 3, 4);  // what was loaded is a copy
  train(second, 3, 6);
  for (std::size_t i = 0; i < 2; ++i) {
    testing::expect_same_on_both(values_of(second.parameters()[i]),
                                 values_of(whole.parameters()[i]), whole.parameters()[i].dtype());
  }
  EXPECT_EQ(second.lr(), whole.lr());
}

TEST(OptimizerState, TrainingGoesOnWithTheSameBits) {
  expect_same_bits<optim::SGD>(optim::SGDOptions{.lr = 0.1});
  expect_same_bits<optim::SGD>(
      optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01});
  expect_same_bits<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true});
  expect_same_bits<optim::Adam>(
      optim::AdamOptions{.lr = 0.1, .betas = {0.8, 0.95}, .eps = 1e-3, .weight_decay = 0.1});
  expect_same_bits<optim::AdamW>(optim::AdamWOptions{.lr = 0.1, .weight_decay = 0.1});
}

TEST(OptimizerState, IsListedUnderTorchsNames) {
  optim::SGD sgd{two_parameters(), {.momentum = 0.5}};
  const Names settings{"param_groups.0.params",       "param_groups.0.lr",
                       "param_groups.0.momentum",     "param_groups.0.dampening",
                       "param_groups.0.weight_decay", "param_groups.0.nesterov"};
  EXPECT_EQ(names_of(sgd.state_dict()), settings);
  give_gradient(sgd.parameters()[1], {1});
  sgd.step();
  Names with_state = settings;
  with_state.push_back("state.1.momentum_buffer");
  EXPECT_EQ(names_of(sgd.state_dict()), with_state);
  const Tensor velocity = sgd.state_dict().back().tensor;
  sgd.step();
  EXPECT_EQ(values_of(velocity), Values{1.5}) << "the optimiser's own, which a step changes";

  optim::Adam adam{two_parameters(), {.lr = 0.25}};
  give_gradient(adam.parameters()[0], {1, 1});
  adam.step();
  const StateDict dict = adam.state_dict();
  EXPECT_EQ(names_of(dict),
            (Names{"param_groups.0.params", "param_groups.0.lr", "param_groups.0.betas.0",
                   "param_groups.0.betas.1", "param_groups.0.eps", "param_groups.0.weight_decay",
                   "state.0.step", "state.0.exp_avg", "state.0.exp_avg_sq"}));
  EXPECT_EQ(values_of(dict[1].tensor), Values{0.25});
  EXPECT_EQ(dict[6].tensor.dtype(), Dtype::i64);
}

TEST(OptimizerState, AParameterWithoutStateBeginsAnew) {
  optim::Adam from{two_parameters()};
  give_gradient(from.parameters()[0], {1, 1});
  from.step();
  optim::Adam adam{two_parameters(), {.lr = 0.25, .eps = 0}};
  train(adam, 0, 3);
  StateDict dict = from.state_dict();
  set(dict, "param_groups.0.lr", scalar_tensor(0.25));
  adam.load_state_dict(dict);
  const Tensor& late = adam.parameters()[1];
  const double before = values_of(late)[0];
  give_gradient(late, {5});
  adam.step();
  EXPECT_NEAR(values_of(late)[0], before - 0.25, 1e-6) << "corrected as a first step";
}

TEST(OptimizerState, ReportsAllThatDoesNotFitAtOnceAndLoadsNothing) {
  optim::Adam adam{two_parameters()};
  train(adam, 0, 1);
  StateDict dict = adam.state_dict();
  set(dict, "param_groups.0.lr", scalar_tensor(0.25));
  set(dict, "param_groups.0.eps", scalar_tensor(1.0F));
  set(dict, "param_groups.0.params", arange(3));
  set(dict, "state.0.exp_avg", zeros({5}));
  set(dict, "state.0.exp_avg_sq", Tensor());
  set(dict, "state.0.step", scalar_tensor(std::int64_t{1} << 53));
  set(dict, "state.1.step", scalar_tensor(std::int64_t{-1}));
  std::erase_if(dict, [](const auto& entry) { return entry.name == "state.1.exp_avg"; });
  dict.push_back({"state.2.exp_avg", zeros({1})});
  dict.push_back(dict[1]);
  EXPECT_TRUE(throws<ModuleError>(
      [&] { adam.load_state_dict(dict); }, "Adam.load_state_dict: the dict does not fit, nothing",
      "missing: state.1.exp_avg", "unexpected: state.2.exp_avg",
      "does not fit: param_groups.0.lr is given twice",
      "does not fit: param_groups.0.eps has to be one number of f64",
      "does not fit: param_groups.0.params has to list 2 parameters, and is of shape [3]",
      "does not fit: state.0.step is too large",
      "does not fit: state.0.exp_avg has shape [5], the parameter [2]",
      "does not fit: state.0.exp_avg_sq is undefined", "does not fit: state.1.step is negative"));
  EXPECT_EQ(adam.lr(), 1e-3);
}

TEST(OptimizerState, AnUninitializedEntryIsListedAmongWhatDoesNotFit) {
  optim::Adam adam{two_parameters()};
  StateDict dict = adam.state_dict();
  set(dict, "param_groups.0.params", Parameter::uninitialized());
  set(dict, "param_groups.0.lr", Parameter::uninitialized());
  EXPECT_TRUE(throws<ModuleError>([&] { adam.load_state_dict(dict); },
                                  "param_groups.0.params is uninitialized",
                                  "param_groups.0.lr is uninitialized"));
}

TEST(OptimizerState, ASparseEntryIsListedAmongWhatDoesNotFit) {
  optim::Adam adam{two_parameters()};
  train(adam, 0, 1);
  StateDict dict = adam.state_dict();
  const Tensor rows = tensor<std::int64_t>({0}).reshape({1, 1});
  set(dict, "state.0.exp_avg", sparse_coo_tensor(rows, ones({1, 2}), {1, 2}));
  set(dict, "param_groups.0.lr", sparse_coo_tensor(rows, ones({1}), {1}));
  EXPECT_TRUE(throws<ModuleError>([&] { adam.load_state_dict(dict); },
                                  "param_groups.0.lr is sparse", "state.0.exp_avg is sparse"));
}

TEST(OptimizerState, StepsMayBeOfF32AsTorchsAre) {
  optim::Adam adam{two_parameters()};
  train(adam, 0, 3);
  StateDict dict = adam.state_dict();
  set(dict, "state.0.step", scalar_tensor(7.0F));
  adam.load_state_dict(dict);
  for (const NamedTensor& entry : adam.state_dict()) {
    if (entry.name == "state.0.step") {
      EXPECT_EQ(entry.tensor.to_vector<std::int64_t>(), std::vector<std::int64_t>{7});
    }
  }
  for (const float wrong : {-1.0F, 0.5F, 1e20F, NAN, INFINITY}) {
    set(dict, "state.0.step", scalar_tensor(wrong));
    EXPECT_TRUE(throws<ModuleError>([&] { adam.load_state_dict(dict); }, "state.0.step is "))
        << wrong;
  }
}

TEST(OptimizerState, RefusesSettingsOutOfRangeAndLoadsNothing) {
  optim::SGD sgd{two_parameters(), {.lr = 0.5, .momentum = 0.9}};
  StateDict dict = sgd.state_dict();
  set(dict, "param_groups.0.lr", scalar_tensor(0.25));
  set(dict, "param_groups.0.momentum", scalar_tensor(-1.0));
  EXPECT_TRUE(throws<ValueError>([&] { sgd.load_state_dict(dict); }, "SGD", "momentum"));
  EXPECT_EQ(sgd.lr(), 0.5);
}

TEST(OptimizerState, OfAnotherOptimizerIsRefused) {
  optim::SGD sgd{two_parameters(), {.momentum = 0.9}};
  optim::Adam adam{two_parameters()};
  EXPECT_TRUE(throws<ModuleError>([&] { adam.load_state_dict(sgd.state_dict()); },
                                  "unexpected: param_groups.0.momentum",
                                  "missing: param_groups.0.eps"));
}

}  // namespace state_test
}  // namespace lockstep
