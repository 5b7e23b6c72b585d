// SPDX-License-Identifier: Apache-2.0

// A whole program in one file that nvcc compiles: all headers, a module, and its training on every
// device that there is. Without a driver these are the host's.
#include <lockstep/cuda.hpp>
#include <lockstep/lockstep.hpp>

#include <cstdlib>
#include <iostream>
#include <string>

namespace ls = lockstep;

struct Net {
  ls::nn::Linear fc1{4, 16};
  ls::nn::Linear fc2{16, 1};

  ls::Tensor forward(const ls::Tensor& x) const { return fc2(ls::relu(fc1(x))); }
};

int main() {
  const ls::Tensor x = ls::randn({64, 4});
  const ls::Tensor y = x.narrow(1, 0, 1) * 2 + 1;
  ls::DataParallel model{Net{}, ls::devices()};
  ls::optim::SGD sgd{model.parameters(), {.lr = 0.05, .momentum = 0.9}};
  float first = 0;
  float last = 0;
  for (int step = 0; step < 100; ++step) {
    const ls::Tensor loss = ls::mse_loss(model(x), y.to(model.output_device()));
    sgd.zero_grad();
    loss.backward();
    sgd.step();
    last = loss.item<float>();
    if (step == 0) first = last;
  }
  const std::string reason = ls::no_cuda_reason();  // empty where there are GPUs
  std::cout << ls::devices().size() << " devices, the first is " << ls::devices()[0] << " ("
            << reason << "); loss " << first << ", after 100 steps " << last << '\n';
  return last < first / 10 && reason != "built without CUDA" ? EXIT_SUCCESS : EXIT_FAILURE;
}
