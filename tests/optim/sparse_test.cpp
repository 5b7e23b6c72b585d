// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/backend/host/host_stream.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/ops/embedding.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/optim/adam.hpp>
#include <lockstep/optim/adamw.hpp>
#include <lockstep/optim/clip_grad.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/optim/sparse_adam.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/sparse.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "optim/parameters.hpp"
#include "support/expect_error.hpp"

namespace lockstep {
namespace sparse_test {

using testing::throws;
using testing::Values;
using testing::values_of;
using Numbers = std::vector<std::int64_t>;

constexpr std::int64_t kRows = 5;
constexpr std::int64_t kWidth = 3;
constexpr int kSteps = 6;

Parameter make_table(Dtype dtype = Dtype::f64, Device device = "cpu:0") {
  Values values;
  for (std::int64_t i = 0; i < kRows * kWidth; ++i)
    values.push_back(std::sin(1.0 + static_cast<double>(i)));
  const Tensor table = empty({kRows, kWidth}, {.dtype = dtype, .device = device});
  detail::copy_into(table, from_values(values, {kRows, kWidth}));
  return Parameter(table);
}

// The rows that step t lists, some of them twice.
Numbers rows_of(int step) {
  if (step == 3) return {};
  return {step % kRows, (2 * step + 1) % kRows, step % kRows};
}

Tensor gradient_of(int step, const Tensor& parameter) {
  const Numbers rows = rows_of(step);
  const auto count = static_cast<std::int64_t>(rows.size());
  Values values;
  for (std::int64_t i = 0; i < count * kWidth; ++i) {
    values.push_back(std::cos(0.4 * step + 1.9 * static_cast<double>(i)));
  }
  const Tensor own = empty({count, kWidth}, parameter.options());
  detail::copy_into(own, from_values(values, {count, kWidth}));
  return sparse_coo_tensor(from_values(rows, {1, count}, parameter.device()), own,
                           parameter.sizes());
}

template <class Options>
Values trained_by_sgd(bool sparse, const Options& options, Dtype dtype) {
  const Parameter table = make_table(dtype);
  optim::SGD sgd{std::vector<Parameter>{table}, options};
  for (int t = 1; t <= kSteps; ++t) {
    const Tensor gradient = gradient_of(t, table);
    table.set_grad(sparse ? gradient : gradient.to_dense());
    sgd.step();
  }
  return values_of(table);
}

TEST(SGDSparse, StepsAreThoseOfTheDenseGradient) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    for (const optim::SGDOptions& options :
         {optim::SGDOptions{.lr = 0.1}, optim::SGDOptions{.lr = 0.1, .momentum = 0.9},
          optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.5},
          optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true}}) {
      EXPECT_EQ(trained_by_sgd(true, options, dtype), trained_by_sgd(false, options, dtype))
          << dtype << ", momentum " << options.momentum;
    }
  }
}

TEST(SGDSparse, TouchesTheListedRowsOnly) {
  const Parameter table = make_table();
  const Values before = values_of(table);
  optim::SGD sgd{std::vector<Parameter>{table}, {.lr = 0.5}};
  table.set_grad(sparse_coo_tensor(from_values<std::int64_t>({1, 1}, {1, 2}, table.device()),
                                   ones({2, kWidth}, table.options()), table.sizes()));
  sgd.step();
  const Values after = values_of(table);
  for (std::size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i], before[i] - (i / kWidth == 1 ? 1 : 0)) << i;
  }
}

// One row is coalesced as it is, so that nobody waits for the error of the look-up before the step.
template <class Optimizer>
void expect_nothing_written_outside() {
  const Parameter table = make_table();
  const Values before = values_of(table);
  Optimizer optimizer{std::vector<Parameter>{table}, {.lr = 0.5}};
  const Tensor outside = from_values<std::int64_t>({kRows + 1000}, {1}, table.device());
  const Stream stream = default_stream(table.device());
  auto* const host = dynamic_cast<detail::HostStream*>(&stream.state());
  if (host) host->set_mode(detail::HostStream::Mode::queued);  // a GPU's stream is asynchronous
  const auto step = [&] {
    embedding(outside, table, {}, true).sum().backward();
    optimizer.step();
    stream.synchronize();
  };
  EXPECT_TRUE(throws<IndexError>(
      step,
      "embedding: the index 1005 at position 0 is outside the 5 embeddings (expected 0 to "
      "4)"));
  if (host) host->set_mode(detail::HostStream::Mode::immediate);
  EXPECT_EQ(values_of(table), before);
}

TEST(SGDSparse, ARowOutsideTheTableIsAnError) { expect_nothing_written_outside<optim::SGD>(); }
TEST(SparseAdam, ARowOutsideTheTableIsAnError) {
  expect_nothing_written_outside<optim::SparseAdam>();
}

TEST(SparseOptimizers, ParametersHaveAsManyDimensionsAsATensorMay) {
  const auto trained = [](auto optimizer_of) {
    Parameter table(ones({4, 1, 1, 1, 1, 1, 1, 2}));
    auto optimizer = optimizer_of(std::vector<Parameter>{table});
    table.set_grad(sparse_coo_tensor(from_values<std::int64_t>({1}, {1, 1}, table.device()),
                                     ones({1, 1, 1, 1, 1, 1, 1, 2}, table.options()),
                                     table.sizes()));
    optimizer.step();
    return table.to_vector<float>();
  };
  const auto moved = trained([](const auto& all) { return optim::SGD{all, {.lr = 0.5}}; });
  EXPECT_EQ(moved, (std::vector<float>{1, 1, 0.5, 0.5, 1, 1, 1, 1}));
  const auto adam = trained([](const auto& all) { return optim::SparseAdam{all, {.lr = 0.5}}; });
  EXPECT_NE(adam[2], 1);
  EXPECT_EQ(adam[4], 1);
}

// The indices of a gradient are memory that the program may write.
template <class Optimizer>
void expect_that_the_gradient_is_named() {
  const Parameter table = make_table();
  Optimizer optimizer{std::vector<Parameter>{table}, {.lr = 0.5}};
  table.set_grad(sparse_coo_tensor(from_values<std::int64_t>({1}, {1, 1}, table.device()),
                                   ones({1, kWidth}, table.options()), table.sizes()));
  table.grad().indices().fill_(kRows + 2);
  EXPECT_TRUE(throws<IndexError>(
      [&] {
        optimizer.step();
        default_stream(table.device()).synchronize();
      },
      "sparse tensor: the index 7 at position 0 is outside the 5 rows (expected 0 to 4)"));
}

TEST(SGDSparse, ARowOutsideTheTableIsTheGradients) {
  expect_that_the_gradient_is_named<optim::SGD>();
}
TEST(SparseAdam, ARowOutsideTheTableIsTheGradients) {
  expect_that_the_gradient_is_named<optim::SparseAdam>();
}

TEST(SGDSparse, WeightDecayIsRefusedBeforeAnythingChanges) {
  const Parameter first = testing::make_parameter({1, 2}, Dtype::f64, "cpu:0");
  const Parameter table = make_table();
  optim::SGD sgd{std::vector<Parameter>{first, table}, {.lr = 0.1, .weight_decay = 0.1}};
  testing::give_gradient(first, {1, 1});
  table.set_grad(gradient_of(1, table));
  EXPECT_TRUE(throws<ValueError>([&] { sgd.step(); },
                                 "SGD with weight_decay is not compatible with sparse gradients: "
                                 "that of parameter 1, of shape [5, 3], is sparse"));
  EXPECT_EQ(values_of(first), (Values{1, 2}));
  table.set_grad({});
  sgd.step();
  EXPECT_NE(values_of(first), (Values{1, 2}));
}

template <class Optimizer>
void expect_refusal(const char* name) {
  const Parameter table = make_table();
  Optimizer optimizer{std::vector<Parameter>{table}};
  table.set_grad(gradient_of(1, table));
  EXPECT_TRUE(throws<ValueError>(
      [&] { optimizer.step(); }, name,
      " does not support sparse gradients, please consider SparseAdam instead: that of parameter "
      "0, of shape [5, 3], is sparse"));
}

TEST(AdamSparse, AdamAndAdamWRefuseSparseGradients) {
  expect_refusal<optim::Adam>("Adam ");
  expect_refusal<optim::AdamW>("AdamW ");
}

// torch.optim.SparseAdam's documented algorithm, in plain arithmetic.
Values expected_of_sparse_adam(const optim::SparseAdamOptions& options) {
  const double beta1 = options.betas.first;
  const double beta2 = options.betas.second;
  Values value = values_of(make_table());
  Values m(value.size(), 0.0);
  Values v(value.size(), 0.0);
  for (int t = 1; t <= kSteps; ++t) {
    const Values gradient = values_of(gradient_of(t, make_table()).to_dense());
    std::vector<bool> listed(kRows, false);
    for (const std::int64_t row : rows_of(t)) listed[static_cast<std::size_t>(row)] = true;
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (!listed[i / kWidth]) continue;
      m[i] += (gradient[i] - m[i]) * (1 - beta1);
      v[i] += (gradient[i] * gradient[i] - v[i]) * (1 - beta2);
      const double step_size =
          options.lr * std::sqrt(1 - std::pow(beta2, t)) / (1 - std::pow(beta1, t));
      value[i] -= step_size * (m[i] / (std::sqrt(v[i]) + options.eps));
    }
  }
  return value;
}

void train(optim::SparseAdam& adam, const Parameter& table, int first, int last) {
  for (int t = first; t <= last; ++t) {
    table.set_grad(gradient_of(t, table));
    adam.step();
  }
}

TEST(SparseAdam, StepsAreTorchs) {
  for (const optim::SparseAdamOptions& options :
       {optim::SparseAdamOptions{.lr = 0.1},
        optim::SparseAdamOptions{.lr = 0.01, .betas = {0.5, 0.9}, .eps = 1e-2}}) {
    const Parameter table = make_table();
    optim::SparseAdam adam{std::vector<Parameter>{table}, options};
    train(adam, table, 1, kSteps);
    const Values found = values_of(table);
    const Values expected = expected_of_sparse_adam(options);
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-12) << i;
  }
}

TEST(SparseAdam, RowsThatAreNotListedStayToTheBit) {
  const Parameter table = make_table(Dtype::f32);
  const Values before = values_of(table);
  optim::SparseAdam adam{std::vector<Parameter>{table}, {.lr = 0.1}};
  for (int t = 0; t < 3; ++t) {
    table.set_grad(sparse_coo_tensor(from_values<std::int64_t>({4, 1}, {1, 2}, table.device()),
                                     ones({2, kWidth}, table.options()), table.sizes()));
    adam.step();
  }
  const Values after = values_of(table);
  for (std::size_t i = 0; i < after.size(); ++i) {
    const std::size_t row = i / kWidth;
    EXPECT_EQ(after[i] != before[i], row == 1 || row == 4) << i;
  }
}

TEST(SparseAdam, AStateThatIsLoadedGoesOnWithTheSameBits) {
  const Parameter whole = make_table();
  optim::SparseAdam straight{std::vector<Parameter>{whole}, {.lr = 0.1, .betas = {0.8, 0.95}}};
  train(straight, whole, 1, kSteps);
  const Parameter first = make_table();
  optim::SparseAdam before{std::vector<Parameter>{first}, {.lr = 0.1, .betas = {0.8, 0.95}}};
  train(before, first, 1, 4);
  std::vector<std::string> names;
  for (const NamedTensor& entry : before.state_dict()) names.push_back(entry.name);
  EXPECT_EQ(names, (std::vector<std::string>{"param_groups.0.params", "param_groups.0.lr",
                                             "param_groups.0.betas.0", "param_groups.0.betas.1",
                                             "param_groups.0.eps", "state.0.step",
                                             "state.0.exp_avg", "state.0.exp_avg_sq"}));
  const Parameter second = make_table();
  detail::copy_into(second, first);
  optim::SparseAdam after{std::vector<Parameter>{second}};
  after.load_state_dict(before.state_dict());
  train(after, second, 5, kSteps);
  EXPECT_EQ(values_of(second), values_of(whole));
  StateDict damaged = before.state_dict();
  damaged.pop_back();
  EXPECT_TRUE(throws<ModuleError>([&] { after.load_state_dict(damaged); }, "SparseAdam",
                                  "state.0.exp_avg_sq"));
}

TEST(SparseAdam, RefusesDenseGradientsAndBadSettings) {
  const Parameter table = make_table();
  optim::SparseAdam adam{std::vector<Parameter>{table}};
  const Values before = values_of(table);
  table.set_grad(gradient_of(1, table).to_dense());
  EXPECT_TRUE(throws<ValueError>([&] { adam.step(); },
                                 "SparseAdam does not support dense gradients, please consider "
                                 "Adam instead: that of parameter 0, of shape [5, 3], is dense"));
  EXPECT_EQ(values_of(table), before);
  const auto make = [&](const optim::SparseAdamOptions& options) {
    return [&table, options] { optim::SparseAdam{std::vector<Parameter>{table}, options}; };
  };
  EXPECT_TRUE(throws<ValueError>(make({.lr = -1}), "SparseAdam: expected lr"));
  EXPECT_TRUE(throws<ValueError>(make({.betas = {1, 0.9}}), "expected betas below 1"));
  EXPECT_TRUE(throws<ValueError>(make({.eps = -1}), "SparseAdam: expected eps"));
  adam.options().eps = -1;
  EXPECT_TRUE(throws<ValueError>([&] { adam.step(); }, "SparseAdam: expected eps"));
}

TEST(OptimizerSparse, ZeroGradForgetsOrListsNoRows) {
  const Parameter table = make_table();
  optim::SGD sgd{std::vector<Parameter>{table}};
  table.set_grad(gradient_of(1, table));
  sgd.zero_grad(false);
  EXPECT_TRUE(table.grad().is_sparse());
  EXPECT_EQ(table.grad().indices().numel(), 0);
  sgd.step();
  EXPECT_EQ(values_of(table), values_of(make_table()));
  sgd.zero_grad();
  EXPECT_FALSE(table.grad().defined());
}

TEST(ClipGradSparse, ScalesTheSumsOfTheRows) {
  const Parameter table = make_table();
  const Parameter dense = testing::make_parameter({1, 2}, Dtype::f64, "cpu:0");
  const auto give = [&](bool sparse) {
    const Tensor gradient = gradient_of(1, table);
    table.set_grad(sparse ? gradient : gradient.to_dense());
    testing::give_gradient(dense, {3, 4});
  };
  const std::vector<Parameter> parameters{table, dense};
  give(false);
  const double norm = optim::clip_grad_norm_(parameters, 0.5);
  const Values expected = values_of(table.grad());
  give(true);
  EXPECT_DOUBLE_EQ(optim::clip_grad_norm_(parameters, 0.5), norm);
  EXPECT_TRUE(table.grad().is_sparse());
  EXPECT_TRUE(table.grad().is_coalesced());
  const Values found = values_of(table.grad().to_dense());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-15) << i;
}

}  // namespace sparse_test
}  // namespace lockstep
