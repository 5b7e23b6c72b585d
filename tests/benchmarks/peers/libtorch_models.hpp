// SPDX-License-Identifier: Apache-2.0
//
// The models of `compare` in LibTorch's layers, their training, and its own way to train them in
// two halves of the batch: replicate, parallel_apply and gradient edges, which is what its
// data_parallel consists of. That itself refuses CPU devices.
#pragma once

#include "../served_steps.hpp"

#include <torch/nn/parallel/data_parallel.h>
#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace compare {

namespace nn = torch::nn;

struct Tiny : nn::Cloneable<Tiny> {
  static constexpr double kMomentum = 0;
  nn::Linear fc{nullptr};

  Tiny() { reset(); }
  void reset() override { fc = register_module("fc", nn::Linear(5, 2)); }
  torch::Tensor forward(const torch::Tensor& x) { return fc(x); }

  static torch::Tensor input() { return torch::randn({30, 5}); }
  static torch::Tensor target() { return torch::randn({30, 2}); }
  static torch::Tensor loss(const torch::Tensor& y, const torch::Tensor& t) {
    return torch::mse_loss(y, t);
  }
};

struct Classes {
  static constexpr double kMomentum = 0.9;
  static torch::Tensor labels(std::int64_t count) { return torch::arange(count) * 7 % 10; }
  static torch::Tensor loss(const torch::Tensor& y, const torch::Tensor& t) {
    return torch::cross_entropy_loss(y, t);
  }
};

struct Mlp : nn::Cloneable<Mlp>, Classes {
  nn::Linear fc1{nullptr}, fc2{nullptr}, fc3{nullptr};

  Mlp() { reset(); }
  void reset() override {
    fc1 = register_module("fc1", nn::Linear(784, 512));
    fc2 = register_module("fc2", nn::Linear(512, 512));
    fc3 = register_module("fc3", nn::Linear(512, 10));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return fc3(torch::relu(fc2(torch::relu(fc1(x)))));
  }

  static torch::Tensor input() { return torch::randn({256, 784}); }
  static torch::Tensor target() { return labels(256); }
};

struct Cnn : nn::Cloneable<Cnn>, Classes {
  nn::Conv2d conv1{nullptr}, conv2{nullptr};
  nn::Linear fc1{nullptr}, fc2{nullptr};

  Cnn() { reset(); }
  void reset() override {
    conv1 = register_module("conv1", nn::Conv2d(1, 32, 5));
    conv2 = register_module("conv2", nn::Conv2d(32, 64, 5));
    fc1 = register_module("fc1", nn::Linear(1024, 512));
    fc2 = register_module("fc2", nn::Linear(512, 10));
  }
  torch::Tensor forward(const torch::Tensor& images) {
    torch::Tensor x = torch::max_pool2d(torch::relu(conv1(images)), 2);
    x = torch::max_pool2d(torch::relu(conv2(x)), 2);
    return fc2(torch::relu(fc1(torch::flatten(x, 1))));
  }

  static torch::Tensor input() { return torch::randn({128, 1, 28, 28}); }
  static torch::Tensor target() { return labels(128); }
};

template <class Net>
struct Training {
  std::shared_ptr<Net> net = std::make_shared<Net>();
  torch::Tensor x = Net::input(), t = Net::target();
  torch::optim::SGD sgd{net->parameters(), torch::optim::SGDOptions(1e-3).momentum(Net::kMomentum)};

  void step(const torch::Tensor& y) {
    sgd.zero_grad();
    Net::loss(y, t).backward();
    sgd.step();
  }
};

template <class Net>
Step whole() {
  return {[training = std::make_shared<Training<Net>>()] {
    training->step(training->net->forward(training->x));
  }};
}

template <class Net>
Step parallel() {
  return {[training = std::make_shared<Training<Net>>()] {
    const std::vector<torch::Device> devices(2, torch::kCPU);
    auto replicas = nn::parallel::replicate(training->net, devices);
    nn::replicate_grad_edges(training->net, replicas, devices);
    training->step(
        torch::cat(nn::parallel::parallel_apply(replicas, training->x.chunk(2), devices)));
  }};
}

}  // namespace compare
