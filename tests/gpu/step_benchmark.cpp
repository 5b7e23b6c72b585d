// SPDX-License-Identifier: Apache-2.0

// Whole training steps of a small MLP in DataParallel: 784-512-512-10, a batch of 256 on the first
// device, cross entropy, SGD with momentum; what torch_step.py does with torch. Prints the
// microseconds of each step, one a line; a step ends with the host waiting for the devices.
//
//   step_benchmark --devices cuda:0,cuda:1,cuda:2,cuda:3 --steps 100
#include <lockstep/lockstep.hpp>

#include "samples.hpp"
#include "support/arguments.hpp"
#include "support/devices.hpp"

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

namespace {

namespace ls = lockstep;

constexpr std::int64_t kBatch = 256;

struct Mlp {
  ls::nn::Linear fc1{784, 512}, fc2{512, 512}, fc3{512, 10};
  ls::Tensor forward(const ls::Tensor& x) { return fc3(ls::relu(fc2(ls::relu(fc1(x))))); }
};

void run(int argc, char** argv) {
  std::string list;
  std::int64_t steps = 100;
  std::int64_t warm_up = 20;
  example::Arguments arguments("Times training steps of a small MLP.");
  arguments.add("--devices", list, "a number, or a list such as cuda:0,cuda:1");
  arguments.add("--steps", steps, "so many are timed");
  arguments.add("--warm-up", warm_up, "so many come before");
  arguments.parse(argc, argv);
  const std::vector<ls::Device> devices = example::choose_devices(list);
  ls::check<ls::DeviceError>(devices[0].is_cuda(), "expected CUDA devices, got ", devices[0]);

  ls::manual_seed(0);
  ls::DataParallel model{Mlp{}, devices};
  ls::optim::SGD sgd{model.parameters(), {.lr = 0.01, .momentum = 0.9}};
  std::vector<std::int64_t> labels(kBatch);
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int64_t>(i % 10);
  const ls::Tensor x = ls::randn({kBatch, 784}).to(devices[0]);
  const ls::Tensor y = ls::from_values(labels, {kBatch}).to(devices[0]);

  const auto step = [&] {
    const ls::Tensor loss = ls::cross_entropy(model(x), y);
    sgd.zero_grad();
    loss.backward();
    sgd.step();
    for (const ls::Device device : devices) ls::synchronize(device);
    return loss;
  };
  for (std::int64_t i = 0; i < warm_up; ++i) step();
  for (std::int64_t i = 0; i < steps; ++i) std::cout << gpu_benchmark::time_of(step) << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(argv[0], [&] { run(argc, argv); });
}
