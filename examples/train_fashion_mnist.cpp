// SPDX-License-Identifier: Apache-2.0

// Trains a small network to tell clothes apart, on every device of the machine.
//
//   train_fashion_mnist --devices 2 --epochs 2
//   train_fashion_mnist --arch resnet --epochs 3 --save clothes.safetensors
//   train_fashion_mnist --max-steps 25 --timeline steps.json

#include <lockstep/lockstep.hpp>

#include "models/image_models.hpp"
#include "support/arguments.hpp"
#include "support/devices.hpp"
#include "support/metrics_file.hpp"
#include "support/progress_bar.hpp"
#include "support/timeline_file.hpp"
#include "support/training_run.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <string>

namespace ls = lockstep;

namespace {

using Images = ls::data::DataLoader<ls::data::FashionMnist>;

// The fraction of the test images that the model gets right.
template <class Net>
double test_accuracy(ls::DataParallel<Net>& model, Images& loader) {
  const ls::NoGradGuard no_grad;
  model.eval();
  double right = 0;
  for (auto [images, labels] : loader) {
    const ls::Tensor guess = ls::argmax(model(images), 1);
    right += ls::eq(guess, labels.to(guess.device())).sum().item();
  }
  model.train();
  return right / static_cast<double>(loader.dataset().size());
}

struct Settings {
  std::string arch = "cnn";
  std::string devices;
  std::filesystem::path data = ls::data::kFashionMnistDirectory;
  std::int64_t epochs = 2;
  std::int64_t batch_size = 64;
  double lr = 0.05;
  std::uint64_t seed = 0;
  std::string dtype = "f32";
  std::int64_t max_steps = 0;
  std::filesystem::path save;
  std::filesystem::path resume;
  std::filesystem::path metrics;
  std::filesystem::path timeline;
};

template <class Net>
void train(const Settings& settings, Net (*make_net)(ls::Dtype)) {
  example::check_folder(settings.save);
  example::check_folder(settings.timeline);
  const auto devices = example::choose_devices(settings.devices);
  const ls::Dtype dtype = settings.dtype == "f64" ? ls::Dtype::f64 : ls::Dtype::f32;
  // Pixels are from 0 to 1, not shifted by their mean. With a background of exactly 0, f32 runs on
  // different numbers of devices stay closer together.
  const ls::data::FashionMnistOptions pixels{.dtype = dtype};
  Images loader{ls::data::FashionMnist(settings.data, true, pixels),
                {.batch_size = settings.batch_size, .shuffle = true, .seed = settings.seed}};
  Images test_loader{ls::data::FashionMnist(settings.data, false, pixels), {.batch_size = 256}};
  example::TimelineFile timeline(settings.timeline);
  example::MetricsFile metrics(settings.metrics, "images_per_second", "test_accuracy");

  ls::manual_seed(settings.seed);
  // The BatchNorms of the ResNet see the whole batch, however many devices share it.
  ls::DataParallel model{make_net(dtype), devices, {.buffers = ls::ReplicaBuffers::synchronized}};
  ls::optim::SGD sgd{model.parameters(), {.lr = settings.lr, .momentum = 0.9}};
  ls::optim::LRScheduler schedule{sgd, example::rise_and_fall(settings.epochs * loader.size())};
  example::TrainingRun run{settings.arch, model, sgd, schedule};
  run.resume(settings.resume);

  while (run.epoch < settings.epochs) {
    const std::int64_t epoch = run.epoch + 1;
    example::ProgressBar bar("epoch " + std::to_string(epoch), loader.size(), "images");
    loader.set_epoch(static_cast<std::uint64_t>(run.epoch));
    const auto start = std::chrono::steady_clock::now();
    std::int64_t done = 0;
    auto batches = ls::data::prefetch(loader, devices, ls::data::whole<1>(model.output_device()));
    for (std::int64_t batch = 1; auto [images, labels] : batches) {
      if (settings.max_steps > 0 && run.step == settings.max_steps) return timeline.finish();
      timeline.begin_step();
      const ls::profile::RecordFunction range("step");
      const ls::Tensor loss = ls::cross_entropy(model(images), labels);
      sgd.zero_grad();
      loss.backward();
      sgd.step();
      schedule.step();

      done += labels.size(0);
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
      const double rate = static_cast<double>(done) / time.count();
      bar.update(batch++, loss.item(), rate);
      metrics.add_step(++run.step, epoch, loss.item(), rate);
    }
    const double accuracy = test_accuracy(model, test_loader);
    std::cout << "epoch " << epoch << "  test accuracy " << std::fixed << std::setprecision(4)
              << accuracy << std::endl;
    metrics.add_score(run.step, epoch, accuracy);
    run.epoch = epoch;
    run.save(settings.save);
  }
  timeline.finish();
}

Settings parse(int argc, char** argv) {
  Settings settings;
  example::Arguments arguments("Trains a small network on Fashion-MNIST.");
  arguments.add("--arch", settings.arch, "mlp, cnn or resnet");
  arguments.add("--devices", settings.devices,
                "a number, or a list such as cpu:0,cpu:1; all there are by default");
  arguments.add("--epochs", settings.epochs, "how often each image is seen");
  arguments.add("--batch-size", settings.batch_size, "images a step, over all devices");
  arguments.add("--lr", settings.lr, "the highest learning rate");
  arguments.add("--seed", settings.seed, "of the first weights and of the shuffling");
  arguments.add("--data", settings.data, "the directory of the four idx files");
  arguments.add("--save", settings.save, "a .safetensors file to write after each epoch");
  arguments.add("--resume", settings.resume,
                "such a file to go on from, the other options being those it was made with");
  arguments.add("--metrics", settings.metrics, "a .csv file for the loss of each step");
  arguments.add("--timeline", settings.timeline,
                "a .json file for what each device does in steps 6 to 25, for Perfetto");
  arguments.add("--dtype", settings.dtype, "f32 or f64");
  arguments.add("--max-steps", settings.max_steps, "stop after so many steps, unless 0");
  arguments.parse(argc, argv);
  if (settings.dtype != "f32" && settings.dtype != "f64") {
    throw example::UsageError("--dtype needs f32 or f64, not \"" + settings.dtype + "\"");
  }
  return settings;
}

void train(const Settings& settings) {
  if (settings.arch == "mlp") {
    train(settings, example::make_mlp);
  } else if (settings.arch == "cnn") {
    train(settings, example::make_cnn);
  } else if (settings.arch == "resnet") {
    train(settings, example::make_resnet);
  } else {
    throw example::UsageError("--arch needs mlp, cnn or resnet, not \"" + settings.arch + "\"");
  }
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(argv[0], [&] { train(parse(argc, argv)); });
}
