// SPDX-License-Identifier: Apache-2.0

// Trains a small network to tell clothes apart with DistributedDataParallel. The same program runs
// with a process for each device, with a thread for each device, or alone.
//
//   mpirun -n 2 train_distributed
//   train_distributed --devices 2
//   train_distributed

#include <lockstep/lockstep.hpp>

#include "models/image_models.hpp"
#include "support/arguments.hpp"
#include "support/devices.hpp"
#include "support/metrics_file.hpp"
#include "support/progress_bar.hpp"
#include "support/training_run.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

namespace ls = lockstep;

namespace {

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

// A rank's share of the images: every size()-th one of each batch.
using Images = ls::data::DataLoader<ls::data::FashionMnist>;

Images share_of(const ls::distributed::ProcessGroup& group, const Settings& settings, bool train) {
  const ls::Dtype dtype = settings.dtype == "f64" ? ls::Dtype::f64 : ls::Dtype::f32;
  const ls::data::DistributedSampler share(
      group.size(), group.rank(), {.shuffle = train, .seed = settings.seed, .drop_last = !train});
  return Images{ls::data::FashionMnist(settings.data, train, {.dtype = dtype}),
                share,
                {.batch_size = train ? settings.batch_size / group.size() : 250}};
}

// The fraction of the test images that the model gets right, over all ranks.
template <class Model>
double test_accuracy(Model& model, const ls::distributed::ProcessGroup& group, Images& loader) {
  const ls::NoGradGuard no_grad;
  model.eval();
  double right = 0;
  std::int64_t seen = 0;
  for (auto [images, labels] : loader) {
    const ls::Tensor guess = ls::argmax(model.module().forward(images.to(model.device())), 1);
    right += ls::eq(guess, labels.to(guess.device())).sum().item();
    seen += images.size(0);
  }
  model.train();
  const auto counts = ls::from_values(std::vector<double>{right, static_cast<double>(seen)}, {2});
  group.all_reduce(counts).wait();
  return counts.narrow(0, 0, 1).item() / counts.narrow(0, 1, 1).item();
}

// Every rank runs this; rank 0 prints.
void train(const Settings& settings, const ls::distributed::ProcessGroup& group) {
  Images loader = share_of(group, settings, true);
  Images test_loader = share_of(group, settings, false);
  const bool tells = group.rank() == 0;
  example::MetricsFile metrics(tells ? settings.metrics : std::filesystem::path(),
                               "images_per_second", "test_accuracy");

  ls::manual_seed(settings.seed);
  ls::DistributedDataParallel model{
      example::make_cnn(settings.dtype == "f64" ? ls::Dtype::f64 : ls::Dtype::f32), group};
  ls::optim::SGD sgd{model.parameters(), {.lr = settings.lr, .momentum = 0.9}};
  ls::optim::LRScheduler schedule{sgd, example::rise_and_fall(settings.epochs * loader.size())};

  std::int64_t step = 0;
  for (std::int64_t epoch = 1; epoch <= settings.epochs; ++epoch) {
    std::optional<example::ProgressBar> bar;
    if (tells) bar.emplace("epoch " + std::to_string(epoch), loader.size(), "images");
    const auto start = std::chrono::steady_clock::now();
    std::int64_t done = 0;
    for (std::int64_t batch = 1;
         auto [images, labels] : ls::data::prefetch(loader, model.device())) {
      if (settings.max_steps > 0 && step == settings.max_steps) return;
      const ls::Tensor loss = ls::cross_entropy(model(images), labels);
      sgd.zero_grad();
      loss.backward();
      sgd.step();
      schedule.step();

      // The mean of the ranks' means is the batch's, since all ranks have equally many images.
      const ls::Tensor mean = loss.detach().clone();
      group.all_reduce(mean, ls::distributed::ReduceOp::avg).wait();
      done += images.size(0) * group.size();
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
      const double rate = static_cast<double>(done) / time.count();
      if (bar) bar->update(batch++, mean.item(), rate);
      metrics.add_step(++step, epoch, mean.item(), rate);
    }
    const double accuracy = test_accuracy(model, group, test_loader);
    if (!tells) continue;
    std::cout << "epoch " << epoch << "  test accuracy " << std::fixed << std::setprecision(4)
              << accuracy << "  on " << group.size() << " ranks" << std::endl;
    metrics.add_score(step, epoch, accuracy);
  }
}

Settings parse(int argc, char** argv) {
  Settings settings;
  example::Arguments arguments("Trains a small network on Fashion-MNIST, one rank a device.");
  arguments.add("--devices", settings.devices,
                "a number of threads, or their devices; without, a process that mpirun started is "
                "one rank, and any other the only one");
  arguments.add("--epochs", settings.epochs, "how often each image is seen");
  arguments.add("--batch-size", settings.batch_size, "images a step, over all ranks");
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

void check_batch_size(const Settings& settings, std::size_t ranks) {
  const auto parts = static_cast<std::int64_t>(ranks);
  if (settings.batch_size >= parts && settings.batch_size % parts == 0) return;
  throw example::UsageError("--batch-size needs a multiple of the " + std::to_string(ranks) +
                            " ranks, not " + std::to_string(settings.batch_size));
}

void train(const Settings& settings) {
  if (settings.devices.empty()) {
    const ls::distributed::ProcessGroup group = ls::distributed::init_process_group();
    check_batch_size(settings, static_cast<std::size_t>(group.size()));
    return train(settings, group);
  }
  const std::vector<ls::Device> devices = example::choose_devices(settings.devices);
  check_batch_size(settings, devices.size());
  ls::distributed::run(devices,
                       [&](const ls::distributed::ProcessGroup& group) { train(settings, group); });
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(argv[0], [&] { train(parse(argc, argv)); });
}
