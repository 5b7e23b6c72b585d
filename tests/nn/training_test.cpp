// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/nn/activation.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/nn/loss.hpp>
#include <lockstep/nn/sequential.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/adam.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/tensor/random.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "nn/support.hpp"

// Layers, losses and optimisers together: what they are for.
namespace lockstep {
namespace training_test {

using testing::f32;
using testing::Values;
using testing::values_of;

struct Outcome {
  double loss;
  std::vector<Values> parameters;
  bool operator==(const Outcome&) const = default;
};

template <class Net, class Optimizer, class Loss>
Outcome train_for(int steps, Net& net, Optimizer& optimizer, const Loss& criterion, const Tensor& x,
                  const Tensor& y) {
  Outcome outcome;
  for (int i = 0; i < steps; ++i) {
    const Tensor loss = criterion(net(x), y);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    outcome.loss = values_of(loss)[0];
  }
  for (const Parameter& parameter : parameters(net)) {
    outcome.parameters.push_back(values_of(parameter));
  }
  return outcome;
}

Tensor corners() { return f32({0, 0, 0, 1, 1, 0, 1, 1}, {4, 2}); }

Outcome train_by_sgd(Device device) {
  manual_seed(5);
  nn::Sequential net{nn::Linear{2, 8}, nn::Tanh{}, nn::Linear{8, 1}};
  optim::SGD sgd{parameters(net), {.lr = 0.1, .momentum = 0.9}};
  to(net, device);
  return train_for(500, net, sgd, nn::MSELoss{}, corners().to(device),
                   f32({0, 1, 1, 0}, {4, 1}).to(device));
}

Outcome train_by_adam(Device device) {
  manual_seed(5);
  nn::Sequential net{nn::Linear{2, 16}, nn::ReLU{}, nn::Linear{16, 2}};
  optim::Adam adam{parameters(net), {.lr = 0.05}};
  to(net, device);
  return train_for(300, net, adam, nn::CrossEntropyLoss{}, corners().to(device),
                   tensor<std::int64_t>({0, 1, 1, 0}).to(device));
}

TEST(Training, SgdLearnsXor) {
  const Outcome first = train_by_sgd("cpu");
  EXPECT_LT(first.loss, 0.01);
  EXPECT_EQ(train_by_sgd("cpu"), first) << "bit for bit";
  EXPECT_EQ(train_by_sgd("cpu:1"), first) << "on any host device";
}

TEST(Training, AdamLearnsXor) {
  const Outcome first = train_by_adam("cpu");
  EXPECT_LT(first.loss, 0.01);
  EXPECT_EQ(train_by_adam("cpu"), first) << "bit for bit";
  EXPECT_EQ(train_by_adam("cpu:1"), first) << "on any host device";
}

}  // namespace training_test
}  // namespace lockstep
