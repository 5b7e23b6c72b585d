// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/reduce_op.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/torch.hpp>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

// One training of a module of LibTorch's, by one process or by the ranks of a group, whatever
// carries the gradients: its losses are the same.
namespace lockstep::testing {

struct TorchMlp : torch::nn::Module {
  torch::nn::Linear fc1{12, 32}, fc2{32, 32}, fc3{32, 4};

  TorchMlp() {
    register_module("fc1", fc1);
    register_module("fc2", fc2);
    register_module("fc3", fc3);
    to(torch::kFloat64);
    double seed = 0;
    const torch::NoGradGuard guard;
    for (torch::Tensor& parameter : parameters()) {
      seed += 1;
      const auto places = torch::arange(parameter.numel(), torch::kFloat64) + 100 * seed;
      parameter.copy_((places.sin() / 4).view_as(parameter));
    }
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return fc3(torch::tanh(fc2(torch::tanh(fc1(x)))));
  }
};

inline constexpr std::int64_t kTorchSteps = 20;

// This rank's part of each batch is trained on; `call` is the model, `mean` takes the ranks' mean.
template <class Call, class Mean>
std::vector<double> torch_losses(TorchMlp& net, std::int64_t rank, std::int64_t size, Call&& call,
                                 const Mean& mean) {
  constexpr std::int64_t kBatch = 24;
  torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  std::vector<double> losses;
  for (std::int64_t step = 0; step < kTorchSteps; ++step) {
    const auto batch = torch::arange(kBatch * 12, torch::kFloat64).add(step * 7).sin();
    const auto part = batch.view({kBatch, 12}).slice(0, rank, kBatch, size);
    const auto target = part.slice(1, 0, 4).pow(2).to(net.fc1->weight.device());
    sgd.zero_grad();
    const torch::Tensor loss = torch::mse_loss(call(part), target);
    loss.backward();
    sgd.step();
    losses.push_back(mean(loss.item<double>()));
  }
  return losses;
}

inline std::vector<double> torch_losses_of_one() {
  TorchMlp net;
  return torch_losses(
      net, 0, 1, [&net](const torch::Tensor& x) { return net.forward(x); },
      [](double loss) { return loss; });
}

// Several buckets, so that some are reduced while backward runs.
inline std::vector<double> torch_losses_of(const distributed::ProcessGroup& group) {
  const auto net = std::make_shared<TorchMlp>();
  libtorch::DistributedDataParallel model{net, group, {.bucket_cap_mb = 0.001}};
  auto losses = torch_losses(*net, group.rank(), group.size(), model, [&group](double loss) {
    const Tensor mean = from_values(std::vector<double>{loss}, {1}, group.device());
    group.all_reduce(mean, distributed::ReduceOp::avg).wait();
    return mean.item();
  });
  EXPECT_GT(model.logging_data().rebuilt_bucket_sizes.size(), 2U);
  return losses;
}

inline void expect_near_losses(const std::vector<double>& got,
                               const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  EXPECT_LT(expected.back(), 0.8 * expected.front()) << "it learns nothing";
  for (std::size_t step = 0; step < got.size(); ++step) {
    EXPECT_NEAR(got[step], expected[step], 1e-9 * std::abs(expected[step])) << "step " << step;
  }
}

}  // namespace lockstep::testing
