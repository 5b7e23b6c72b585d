// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/tensor/creation.hpp>

#include "parallel/layers.hpp"
#include "support/devices.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <thread>
#include <vector>

// One process, in which several parts use the library and do not know of each other.
namespace lockstep {
namespace many_users_test {

using testing::first_devices;
using testing::L0;
using testing::x5;
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
