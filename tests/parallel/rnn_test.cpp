// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/nn/rnn.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/cat.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/parallel/replicate.hpp>

#include "support/devices.hpp"
#include "support/varied.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace ls = lockstep;
using ls::testing::all_close;
using ls::testing::first_devices;
using ls::testing::varied;

namespace rnn_parallel_test {

// Values that are the same every time.
template <class M>
M with_values(M module) {
  const ls::NoGradGuard guard;
  std::size_t seed = 1;
  for (const ls::Parameter& parameter : ls::parameters(module)) {
    parameter.copy_(varied(parameter.sizes(), seed++, ls::Device("cpu")));
  }
  return module;
}

ls::Tensor on_cpu(const ls::Shape& shape, std::size_t seed) {
  return varied(shape, seed, ls::Device("cpu"));
}

ls::nn::LSTM deep_lstm() {
  return with_values(
      ls::nn::LSTM{2, 3, {.num_layers = 2, .bidirectional = true, .dtype = ls::Dtype::f64}});
}

template <class M, class N>
void expect_equal_gradients(const M& found, const N& expected) {
  const auto theirs = ls::named_parameters(expected);
  const auto ours = ls::named_parameters(found);
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_EQ(ours[i].name, theirs[i].name);
    EXPECT_TRUE(all_close(ours[i].tensor.grad(), theirs[i].tensor.grad(), 1e-10, 1e-12))
        << ours[i].name;
  }
}

// A model of sequences [batch, length, features], of which the last state is used.
struct Net {
  ls::nn::LSTM lstm{3, 4, {.num_layers = 2, .batch_first = true, .dtype = ls::Dtype::f64}};
  ls::nn::Linear head{4, 2, {.dtype = ls::Dtype::f64}};

  ls::Tensor forward(const ls::Tensor& x) const {
    const auto [y, state] = lstm(x);
    return head(ls::select(y, 1, -1));
  }
};

TEST(RecurrentReplicas, D23OneStepOfSgdIsTheSameAsOnOneDevice) {
  const ls::Tensor x = on_cpu({4, 5, 3}, 11);
  const Net alone = with_values(Net{});
  ls::optim::SGD sgd_alone{ls::parameters(alone), {.lr = 0.1}};
  ls::sum(ls::square(alone.forward(x))).backward();
  sgd_alone.step();
  for (const std::size_t devices : {1U, 2U, 3U, 4U}) {
    ls::DataParallel model{with_values(Net{}), first_devices(devices)};
    ls::optim::SGD sgd{model.parameters(), {.lr = 0.1}};
    ls::sum(ls::square(model(x))).backward();
    expect_equal_gradients(model.module(), alone);
    sgd.step();
    const auto ours = model.named_parameters();
    const auto theirs = ls::named_parameters(alone);
    ASSERT_EQ(ours.size(), theirs.size());
    for (std::size_t i = 0; i < ours.size(); ++i) {
      EXPECT_TRUE(all_close(ours[i].tensor, theirs[i].tensor, 1e-12)) << ours[i].name;
    }
  }
}

TEST(RecurrentReplicas, HaveEachParameterUnderItsName) {
  const auto replicas =
      ls::replicate(ls::nn::GRU{2, 3, {.num_layers = 2, .bidirectional = true, .device = "cpu:0"}},
                    first_devices(2));
  ASSERT_EQ(replicas.size(), 2U);
  const auto first = ls::named_parameters(replicas[0]);
  const auto second = ls::named_parameters(replicas[1]);
  ASSERT_EQ(second.size(), 16U);
  for (std::size_t i = 0; i < second.size(); ++i) {
    EXPECT_EQ(second[i].name, first[i].name);
    EXPECT_EQ(second[i].tensor.device(), first_devices(2)[1]);
    EXPECT_EQ(second[i].tensor.to_vector<float>(), first[i].tensor.to_vector<float>());
  }
}

// The batch of sequences [length, batch, features] and of the states is dimension 1: input and
// states go out along it, and outputs and states come back.
TEST(RecurrentReplicas, SplitAndJoinTheBatchAlongDimensionOne) {
  const ls::Tensor x = on_cpu({4, 5, 2}, 21);
  const ls::Tensor h0 = on_cpu({4, 5, 3}, 22);
  const ls::Tensor c0 = on_cpu({4, 5, 3}, 23);
  const ls::Tensor weights = on_cpu({4, 5, 6}, 24);
  const ls::nn::LSTM alone = deep_lstm();
  const auto [y, state] = alone(x, {h0, c0});
  const auto& [h, c] = state;
  (ls::sum(y * weights) + ls::sum(h * c)).backward();

  for (const std::size_t devices : {2U, 3U, 5U}) {
    ls::DataParallel model{deep_lstm(), first_devices(devices), {.dim = 1}};
    const auto [found, found_state] = model(x, std::tuple{h0, c0});
    const auto& [last_h, last_c] = found_state;
    EXPECT_EQ(found.device(), first_devices(1)[0]);
    EXPECT_TRUE(all_close(found, y, 1e-12));
    EXPECT_TRUE(all_close(last_h, h, 1e-12));
    EXPECT_TRUE(all_close(last_c, c, 1e-12));
    (ls::sum(found * weights.to(found.device())) + ls::sum(last_h * last_c)).backward();
    expect_equal_gradients(model.module(), alone);
  }
}

TEST(RecurrentReplicas, GoOnFromTheStatesThatTheyGave) {
  const ls::Tensor x = on_cpu({6, 4, 2}, 31);
  const ls::nn::GRU alone =
      with_values(ls::nn::GRU{2, 3, {.num_layers = 2, .dtype = ls::Dtype::f64}});
  const auto [y, h] = alone(x);
  ls::DataParallel model{with_values(ls::nn::GRU{2, 3, {.num_layers = 2, .dtype = ls::Dtype::f64}}),
                         first_devices(2),
                         {.dim = 1}};
  const auto [first, between] = model(x.narrow(0, 0, 3));
  const auto [second, last] = model(x.narrow(0, 3, 3), between);
  EXPECT_TRUE(all_close(second, y.narrow(0, 3, 3), 1e-12));
  EXPECT_TRUE(all_close(last, h, 1e-12));
  ls::sum(second).backward();  // through both calls
  ls::sum(y.narrow(0, 3, 3)).backward();
  expect_equal_gradients(model.module(), alone);
}

TEST(RecurrentReplicas, DrawDropoutOfTheirOwn) {
  const ls::nn::RNN rnn{2, 16, {.num_layers = 2, .dropout = 0.5, .dtype = ls::Dtype::f64}};
  ls::DataParallel model{rnn, first_devices(2), {.dim = 1}};
  const ls::Tensor column = on_cpu({3, 1, 2}, 41);
  const ls::Tensor x = ls::cat({column, column}, 1);
  const auto [y, h] = model(x);
  EXPECT_FALSE(all_close(y.narrow(1, 0, 1), y.narrow(1, 1, 1)));
  model.eval();
  const auto [same, same_h] = model(x);
  EXPECT_TRUE(all_close(same.narrow(1, 0, 1), same.narrow(1, 1, 1), 1e-12));
}

}  // namespace rnn_parallel_test
