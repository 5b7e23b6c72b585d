// SPDX-License-Identifier: Apache-2.0

// Data parallelism in four steps, each called by itself as one calls MPI's collectives: scatter a
// batch, replicate a module, apply the replicas, gather their results. Then backward.
//
// The example uses two host devices. To use GPUs, take `ls::devices()`.

#include <lockstep/lockstep.hpp>

#include <iostream>
#include <vector>

namespace ls = lockstep;

int main() {
  ls::set_host_device_count(2);
  const std::vector<ls::Device> devices = ls::host_devices();

  // scatter: equal chunks; the last one is shorter if the rows do not divide.
  for (const int rows : {16, 15}) {
    std::cout << "scatter: " << rows << " rows are";
    for (const ls::Tensor& chunk : ls::scatter(ls::randn({rows, 10}), devices)) {
      std::cout << ' ' << chunk.size(0) << " on " << chunk.device();
    }
    std::cout << '\n';
  }

  // replicate: a module for each device, with its own parameters there.
  ls::nn::Linear module{10, 20};
  ls::to(module, devices.front());
  auto replicas = ls::replicate(module, devices);
  for (const auto& replica : replicas) {
    for (const auto& [name, parameter] : ls::named_parameters(replica)) {
      std::cout << "replicate: " << name << ' ' << parameter.sizes() << " on " << parameter.device()
                << '\n';
    }
  }

  // parallel_apply: all replicas at once, one result a device.
  const ls::Tensor batch = ls::randn({16, 10}, {.requires_grad = true});
  const auto outputs = ls::parallel_apply(replicas, ls::scatter(batch, devices));
  for (const ls::Tensor& output : outputs) {
    std::cout << "parallel_apply: " << output.sizes() << " on " << output.device() << '\n';
  }

  // gather: puts the results together on one device.
  const ls::Tensor output = ls::gather(outputs, devices.front());
  std::cout << "gather: " << output.sizes() << " on " << output.device() << '\n';

  // Backward goes the same way back. The sum's derivative by the bias is 1 for each row: 8 rows of
  // each replica, added up in the module that they are replicas of.
  output.sum().backward();
  for (const auto& [name, parameter] : ls::named_parameters(module)) {
    std::cout << "backward: gradient of " << name << ' ' << parameter.grad().sizes() << " on "
              << parameter.grad().device() << '\n';
  }
  std::cout << "backward: each bias has " << module.bias.grad().mean().item() << '\n'
            << "backward: gradient of the batch " << batch.grad().sizes() << " on "
            << batch.grad().device() << '\n';
}
