// SPDX-License-Identifier: Apache-2.0
//
// LibTorch, served to `compare`: the tiny model's training step on the whole batch with one thread
// (tiny/full), one eager operation on two floats (add, add_backward), and the three models' step in
// two halves of the batch (tiny/parallel, mlp/parallel, cnn/parallel).
//
// `libtorch THREADS`: so many intra-op threads. Compiled without -fopenmp its parallel_apply runs
// one replica after the other.
#include "../served_steps.hpp"
#include "libtorch_models.hpp"

#include <torch/torch.h>

#include <cstdlib>

namespace compare {
namespace {

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

int main(int argc, char** argv) {
  using namespace compare;
  at::set_num_threads(argc > 1 ? std::atoi(argv[1]) : 1);
  Steps steps;
  steps.add("tiny/full", whole<Tiny>);
  steps.add("tiny/parallel", parallel<Tiny>);
  steps.add("mlp/parallel", parallel<Mlp>);
  steps.add("cnn/parallel", parallel<Cnn>);
  steps.add("add", add);
  steps.add("add_backward", add_backward);
  serve(steps);
}
