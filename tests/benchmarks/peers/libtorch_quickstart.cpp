// SPDX-License-Identifier: Apache-2.0
//
// README.md's quick start as LibTorch has it, for `compile_time`. LibTorch's data_parallel refuses
// CPU devices, so its parts stand here.
#include <torch/nn/parallel/data_parallel.h>
#include <torch/torch.h>

#include <iostream>
#include <vector>

namespace parallel = torch::nn::parallel;

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};

  NetImpl() { reset(); }
  void reset() override {
    fc1 = register_module("fc1", torch::nn::Linear(4, 16));
    fc2 = register_module("fc2", torch::nn::Linear(16, 1));
  }
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
TORCH_MODULE(Net);

int main() {
  torch::manual_seed(1);
  const std::vector<torch::Device> devices(2, torch::kCPU);
  const torch::Tensor x = torch::randn({64, 4}), y = x.narrow(1, 0, 1) * 2 + 1;
  Net net;
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step <= 100; ++step) {
    auto replicas = parallel::replicate(net, devices);
    const torch::Tensor output =
        torch::cat(parallel::parallel_apply(replicas, x.chunk(2), devices));
    const torch::Tensor loss = torch::mse_loss(output, y);
    sgd.zero_grad();
    loss.backward();
    sgd.step();
    if (step == 100) {
      std::cout << (loss.item<float>() < 0.01 ? "learned" : "not learned") << " on "
                << devices.size() << " devices\n";
    }
  }
}
