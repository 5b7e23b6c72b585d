// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/nn/batch_norm.hpp>
#include <lockstep/nn/dropout.hpp>
#include <lockstep/nn/embedding.hpp>
#include <lockstep/nn/layer_norm.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/nn/multihead_attention.hpp>
#include <lockstep/nn/rnn.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/max.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/adam.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/random.hpp>

#include "parallel/layers.hpp"
#include "support/devices.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <vector>

// One process, in which several parts use the library and do not know of each other.
namespace lockstep {
namespace many_users_test {

using testing::first_devices;
using testing::L0;
using testing::x5;
using testing::y5;
using Values = std::vector<double>;

// The losses of a training, which the learning rate makes another one.
Values losses_of(double lr) {
  DataParallel model{L0{}, first_devices(3)};
  optim::SGD sgd{model.parameters(), {.lr = lr, .momentum = 0.5}};
  Values losses;
  for (int step = 0; step < 50; ++step) {
    sgd.zero_grad();
    const Tensor y = model(x5());
    const Tensor loss = (y * y).mean();
    loss.backward();
    sgd.step();
    losses.push_back(loss.item());
  }
  return losses;
}

TEST(ManyUsers, TwoThreadsTrainTwoModelsOnTheSameDevices) {
  const std::vector<double> rates = {0.01, 0.02, 0.03};
  std::vector<Values> alone;
  for (const double lr : rates) alone.push_back(losses_of(lr));
  std::vector<Values> together(rates.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < rates.size(); ++i) {
    threads.emplace_back([&, i] { together[i] = losses_of(rates[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, alone);
}

// Layers whose forward changes nothing: of a BatchNorm, and of a Dropout, that in eval.
struct Answers {
  nn::Embedding words{7, 4, {.dtype = Dtype::f64}};
  nn::LSTM lstm{4, 4, {.batch_first = true, .dtype = Dtype::f64}};
  nn::MultiheadAttention attention{4, 2, {.batch_first = true, .dtype = Dtype::f64}};
  nn::BatchNorm1d norm{3, {.dtype = Dtype::f64}};
  nn::Dropout dropout{0.5};
  nn::LayerNorm layer_norm{4, {.dtype = Dtype::f64}};
  nn::Linear out{4, 2, {.dtype = Dtype::f64}};

  Tensor forward(const Tensor& indices) const {
    const auto [y, state] = lstm(words(indices));
    const auto [z, weights] = attention(y, y, y);
    return out(layer_norm(dropout(norm(z))));
  }
};

// All call it as it is and none has a copy; what they add to the gradients comes in any order.
TEST(ManyUsers, OneModuleAnswersManyThreadsAtOnce) {
  constexpr std::size_t kThreads = 4;
  constexpr int kCalls = 10;
  manual_seed(1);
  Answers module;
  eval(module);
  const auto answer = [&](std::size_t i) {
    const auto first = static_cast<std::int64_t>(i);
    const Tensor y =
        module.forward(from_values<std::int64_t>({first, 1, 2, first + 1, 3, first}, {2, 3}));
    square(y).sum().backward();
    return y.to_vector<double>();
  };
  std::vector<Values> alone;
  for (std::size_t i = 0; i < kThreads; ++i) alone.push_back(answer(i));
  std::vector<Tensor> expected;
  for (const Tensor& parameter : parameters(module)) {
    expected.push_back(parameter.grad() * static_cast<double>(kCalls));
    parameter.set_grad({});
  }
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int call = 0; call < kCalls; ++call) EXPECT_EQ(answer(i), alone[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto all = parameters(module);
  for (std::size_t p = 0; p < all.size(); ++p) {
    const double roundings = 1e-12 * (1 + max(abs(expected[p])).item());
    EXPECT_LT(max(abs(all[p].grad() - expected[p])).item(), roundings) << "parameter " << p;
  }
}

// The first calls of all of them make the replicas.
TEST(ManyUsers, OneDataParallelAnswersManyThreadsAtOnce) {
  for (int round = 0; round < 20; ++round) {
    const DataParallel model{L0{}, first_devices(3)};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int call = 0; call < 3; ++call) EXPECT_EQ(model(x5()).to_vector<double>(), y5());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

// An optimiser belongs to one thread at a time; several may have parts of one module.
TEST(ManyUsers, OptimizersOfPartsOfAModuleStepAtTheSameTime) {
  const auto trained = [](bool at_once) {
    manual_seed(1);
    Answers module;
    eval(module);
    optim::Adam adam{parameters(module.lstm)};
    optim::SGD sgd{parameters(module.out), {.lr = 0.1, .momentum = 0.5}};
    for (int step = 0; step < 20; ++step) {
      square(module.forward(from_values<std::int64_t>({0, 1, 2, 3, 4, 5}, {2, 3})))
          .sum()
          .backward();
      const auto steps_of = [](auto& optimizer) {
        optimizer.step();
        optimizer.zero_grad();
      };
      std::thread other;
      if (at_once) {
        other = std::thread([&] { steps_of(adam); });
      } else {
        steps_of(adam);
      }
      steps_of(sgd);
      if (at_once) other.join();
    }
    Values values;
    for (const Tensor& parameter : parameters(module)) {
      const Values own = parameter.to_vector<double>();
      values.insert(values.end(), own.begin(), own.end());
    }
    return values;
  };
  EXPECT_EQ(trained(true), trained(false));
}

// What lives as long as the process is destroyed after main, and threads of the library are there
// still.
TEST(ManyUsersDeathTest, AModelMayLiveAsLongAsTheProcessWithWorkInFlight) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [] {
    static DataParallel model{L0{}, first_devices(3)};
    static const Tensor y = model(x5());
    y.sum().backward();
    static const Tensor large = zeros({1 << 22}, {.device = "cpu:0"});
    const StreamGuard guard(copy_stream("cpu:1"));
    static const Tensor copy = large.to(Device("cpu:1"));
    std::exit(0);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(0), "");
}

}  // namespace many_users_test
}  // namespace lockstep
