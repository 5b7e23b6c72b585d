// SPDX-License-Identifier: Apache-2.0

// Whole training steps in DataParallel, what torch_step.py does with torch: the loss, backward and
// SGD with momentum. Prints the microseconds of each step, one a line; a step ends with the host
// waiting for the devices.
//
//   step_benchmark --model mlp --devices cuda:0,cuda:1,cuda:2,cuda:3 --steps 100
//
//   mlp          784-512-512-10, a batch of 256
//   lenet        two convolutions, two linear layers, a batch of 128
//   resnet       three residual blocks, a batch of 128
//   lstm         two layers of 128, 32 texts of 64 characters
//   transformer  two blocks of width 128 with four heads, 32 texts of 64 characters
#include <lockstep/lockstep.hpp>

#include "models/image_models.hpp"
#include "models/text_models.hpp"
#include "samples.hpp"
#include "support/arguments.hpp"
#include "support/devices.hpp"

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace ls = lockstep;

struct Settings {
  std::string model = "mlp";
  std::vector<ls::Device> devices;
  std::int64_t steps = 100;
  std::int64_t warm_up = 20;
};

struct Mlp {
  ls::nn::Linear fc1{784, 512}, fc2{512, 512}, fc3{512, 10};
  ls::Tensor forward(const ls::Tensor& x) { return fc3(ls::relu(fc2(ls::relu(fc1(x))))); }
};

// Whole numbers below `limit`.
ls::Tensor some_integers(const ls::Shape& shape, std::int64_t limit) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  std::vector<std::int64_t> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::int64_t>(i) * 7 % limit;
  }
  return ls::from_values(values, shape);
}

// `loss` is a function of the DataParallel.
template <typename Module, typename Loss>
void time_steps(const Settings& settings, Module module, std::int64_t dim, const Loss& loss) {
  ls::DataParallel model{
      std::move(module), settings.devices, {.dim = dim, .scalar_outputs = ls::Reduction::mean}};
  ls::optim::SGD sgd{model.parameters(), {.lr = 0.01, .momentum = 0.9}};
  const auto step = [&] {
    const ls::Tensor value = loss(model);
    sgd.zero_grad();
    value.backward();
    sgd.step();
    for (const ls::Device device : settings.devices) ls::synchronize(device);
    return value;
  };
  for (std::int64_t i = 0; i < settings.warm_up; ++i) step();
  for (std::int64_t i = 0; i < settings.steps; ++i) {
    std::cout << gpu_benchmark::time_of(step) << '\n';
  }
}

template <typename Module>
void time_images(const Settings& settings, Module module, const ls::Shape& shape) {
  const ls::Tensor x = ls::randn(shape).to(settings.devices[0]);
  const ls::Tensor y = some_integers({shape[0]}, 10).to(settings.devices[0]);
  time_steps(settings, std::move(module), 0,
             [&](auto& model) { return ls::cross_entropy(model(x), y); });
}

template <typename Module>
void time_texts(const Settings& settings, Module module) {
  const ls::Tensor text = some_integers({64, 32}, example::kCharacters).to(settings.devices[0]);
  time_steps(settings, std::move(module), 1, [&](auto& model) { return model(text, text); });
}

void run(int argc, char** argv) {
  Settings settings;
  std::string list;
  example::Arguments arguments("Times training steps.");
  arguments.add("--model", settings.model, "mlp, lenet, resnet, lstm or transformer");
  arguments.add("--devices", list, "a number, or a list such as cuda:0,cuda:1");
  arguments.add("--steps", settings.steps, "so many are timed");
  arguments.add("--warm-up", settings.warm_up, "so many come before");
  arguments.parse(argc, argv);
  settings.devices = example::choose_devices(list);
  ls::check<ls::DeviceError>(settings.devices[0].is_cuda(), "expected CUDA devices, got ",
                             settings.devices[0]);
  ls::manual_seed(0);
  if (settings.model == "mlp") {
    time_images(settings, Mlp{}, {256, 784});
  } else if (settings.model == "lenet") {
    time_images(settings, example::make_cnn(ls::Dtype::f32), {128, 1, 28, 28});
  } else if (settings.model == "resnet") {
    time_images(settings, example::make_resnet(ls::Dtype::f32), {128, 1, 28, 28});
  } else if (settings.model == "lstm") {
    time_texts(settings, example::make_lstm_model({}));
  } else if (settings.model == "transformer") {
    time_texts(settings, example::make_transformer_model({}));
  } else {
    throw example::UsageError("there is no model " + settings.model);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(argv[0], [&] { run(argc, argv); });
}
