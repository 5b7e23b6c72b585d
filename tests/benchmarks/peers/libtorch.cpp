// SPDX-License-Identifier: Apache-2.0
//
// LibTorch, one thread, served to `compare`: the tiny model's training step on the whole batch
// (tiny/full), and one eager operation on two floats (add, add_backward).
#include "../served_steps.hpp"

#include <torch/torch.h>

namespace compare {
namespace {

Step tiny() {
  struct Training {
    torch::nn::Linear fc{5, 2};
    torch::Tensor x = torch::randn({30, 5}), y = torch::randn({30, 2});
    torch::optim::SGD sgd{fc->parameters(), torch::optim::SGDOptions(1e-3)};
  };
  return {[training = std::make_shared<Training>()] {
    training->sgd.zero_grad();
    torch::mse_loss(training->fc(training->x), training->y).backward();
    training->sgd.step();
  }};
}

Step add() {
  return {[a = torch::ones(2), b = torch::ones(2)] { (void)(a + b); }};
}

Step add_backward() {
  return {[a = torch::ones(2, torch::requires_grad()), b = torch::ones(2),
           gradient = torch::ones(2)]() mutable {
    (a + b).backward(gradient);
    a.mutable_grad() = torch::Tensor();
  }};
}

}  // namespace
}  // namespace compare

int main() {
  at::set_num_threads(1);
  compare::Steps steps;
  steps.add("tiny/full", compare::tiny);
  steps.add("add", compare::add);
  steps.add("add_backward", compare::add_backward);
  compare::serve(steps);
}
