// SPDX-License-Identifier: Apache-2.0

// Trains a small convolutional network to tell clothes apart, on every device of the machine.
//
//   train_fashion_mnist --devices 2 --epochs 2

#include <lockstep/lockstep.hpp>

#include "support/arguments.hpp"
#include "support/devices.hpp"
#include "support/metrics_file.hpp"
#include "support/progress_bar.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <string>

namespace ls = lockstep;

namespace {

// A LeNet: images of 28 × 28 in, a score for each of the 10 classes out.
struct Net {
  ls::nn::Conv2d conv1, conv2;
  ls::nn::Linear fc1, fc2;

  ls::Tensor forward(const ls::Tensor& images) {
    ls::Tensor x = ls::relu(ls::max_pool2d(conv1(images), 2));
    x = ls::relu(ls::max_pool2d(conv2(x), 2));
    return fc2(ls::relu(fc1(ls::flatten(x, 1))));
  }
};

Net make_net(ls::Dtype dtype) {
  return {.conv1{1, 32, 5, {.dtype = dtype}},
          .conv2{32, 64, 5, {.dtype = dtype}},
          .fc1{64 * 4 * 4, 512, {.dtype = dtype}},
          .fc2{512, 10, {.dtype = dtype}}};
}

using Images = ls::data::DataLoader<ls::data::FashionMnist>;

// The part of the test images that the model gets right.
double test_accuracy(ls::DataParallel<Net>& model, Images& loader) {
  const ls::NoGradGuard no_grad;
  model.eval();
  std::int64_t right = 0;
  for (auto [images, labels] : loader) {
    const ls::Tensor guess = ls::argmax(model(images), 1);
    right += ls::eq(guess, labels.to(guess.device())).sum().item<std::int64_t>();
  }
  model.train();
  return static_cast<double>(right) / static_cast<double>(loader.dataset().size());
}

struct Settings {
  std::string devices;
  std::filesystem::path data = ls::data::kFashionMnistDirectory;
  std::int64_t epochs = 2;
  std::int64_t batch_size = 64;
  double lr = 0.05;
  std::uint64_t seed = 0;
  std::string dtype = "f32";
  std::int64_t max_steps = 0;
  std::filesystem::path metrics;
};

void train(const Settings& settings) {
  const auto devices = example::choose_devices(settings.devices);
  const ls::Dtype dtype = settings.dtype == "f64" ? ls::Dtype::f64 : ls::Dtype::f32;
  // Pixels from 0 to 1, not shifted by their mean: with a background of exactly 0, f32 runs on
  // different numbers of devices stay closer together.
  const ls::data::FashionMnistOptions pixels{.dtype = dtype};
  Images loader{ls::data::FashionMnist(settings.data, true, pixels),
                {.batch_size = settings.batch_size, .shuffle = true, .seed = settings.seed}};
  Images test_loader{ls::data::FashionMnist(settings.data, false, pixels), {.batch_size = 256}};
  example::MetricsFile metrics(settings.metrics);

  ls::manual_seed(settings.seed);
  ls::DataParallel model{make_net(dtype), devices};
  ls::optim::SGD sgd{model.parameters(), {.lr = settings.lr, .momentum = 0.9}};

  // The learning rate rises over the first tenth of the steps and falls to zero over the others:
  // the rise keeps small differences of f32's rounding from growing in the first, steepest steps.
  const auto all_steps = static_cast<double>(settings.epochs * loader.size());
  std::int64_t step = 0;
  for (std::int64_t epoch = 1; epoch <= settings.epochs; ++epoch) {
    example::ProgressBar bar("epoch " + std::to_string(epoch), loader.size());
    const auto start = std::chrono::steady_clock::now();
    std::int64_t done = 0;
    for (std::int64_t batch = 1; auto [images, labels] : loader) {
      if (settings.max_steps > 0 && step == settings.max_steps) return;
      const ls::Tensor loss = ls::cross_entropy(model(images), labels.to(model.output_device()));
      const double progress = static_cast<double>(step + 1) / all_steps;
      sgd.set_lr(settings.lr * std::min(10 * progress, (1 - progress) * 10 / 9));
      sgd.zero_grad();
      loss.backward();
      sgd.step();

      done += images.size(0);
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
      const double rate = static_cast<double>(done) / time.count();
      bar.update(batch++, loss.item(), rate);
      metrics.add_step(++step, epoch, loss.item(), rate);
    }
    const double accuracy = test_accuracy(model, test_loader);
    std::cout << "epoch " << epoch << "  test accuracy " << std::fixed << std::setprecision(4)
              << accuracy << std::endl;
    metrics.add_accuracy(step, epoch, accuracy);
  }
}

Settings parse(int argc, char** argv) {
  Settings settings;
  example::Arguments arguments("Trains a small convolutional network on Fashion-MNIST.");
  arguments.add("--devices", settings.devices,
                "a number, or a list such as cpu:0,cpu:1; all there are by default");
  arguments.add("--epochs", settings.epochs, "how often each image is seen");
  arguments.add("--batch-size", settings.batch_size, "images a step, over all devices");
  arguments.add("--lr", settings.lr, "the highest learning rate");
  arguments.add("--seed", settings.seed, "of the first weights and of the shuffling");
  arguments.add("--data", settings.data, "the directory of the four idx files");
  arguments.add("--metrics", settings.metrics, "a .csv file for the loss of each step");
  arguments.add("--dtype", settings.dtype, "f32 or f64");
  arguments.add("--max-steps", settings.max_steps, "stop after so many steps, unless 0");
  arguments.parse(argc, argv);
  if (settings.dtype != "f32" && settings.dtype != "f64") {
    throw example::UsageError("--dtype needs f32 or f64, not \"" + settings.dtype + "\"");
  }
  return settings;
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(argv[0], [&] { train(parse(argc, argv)); });
}
