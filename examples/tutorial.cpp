// SPDX-License-Identifier: Apache-2.0

// The classic data parallelism tutorial: a model prints the sizes of what it sees, first on one
// device, then on several, where each sees its share of every batch.
//
//   tutorial --devices 2

#include <lockstep/lockstep.hpp>

#include "support/arguments.hpp"
#include "support/devices.hpp"

#include <iostream>
#include <string>
#include <syncstream>

namespace ls = lockstep;

namespace {

struct Model {
  ls::nn::Linear fc{5, 2};
  std::string margin;

  // All devices print at once, so each line is written in one piece.
  ls::Tensor forward(const ls::Tensor& input) {
    ls::Tensor output = fc(input);
    std::osyncstream(std::cout) << margin << "In Model: input size " << input.sizes()
                                << " output size " << output.sizes() << '\n';
    return output;
  }
};

void run_tutorial(int argc, char** argv) {
  std::string device_text;
  example::Arguments arguments("Shows how DataParallel divides each batch among the devices.");
  arguments.add("--devices", device_text,
                "a number, or a list such as cpu:0,cpu:1 (all there are)");
  arguments.parse(argc, argv);
  const auto devices = example::choose_devices(device_text);

  Model net;
  if (devices.size() > 1) {
    std::cout << "Use " << devices.size() << " devices!\n";
    net.margin = "    ";
  }
  ls::DataParallel model{net, devices};

  ls::data::DataLoader loader{ls::data::TensorDataset{ls::randn({100, 5})},
                              {.batch_size = 30, .shuffle = true}};
  for (auto [input] : loader) {
    const ls::Tensor output = model(input);
    std::cout << "Outside: input size " << input.sizes() << " output size " << output.sizes()
              << '\n';
  }
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(argv[0], [&] { run_tutorial(argc, argv); });
}
