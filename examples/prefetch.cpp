// SPDX-License-Identifier: Apache-2.0

// Shows what prefetch saves. Trains on images that are turned, scaled and moved at random. First
// each batch is made between two steps. Then prefetch makes and copies the next batch while a step
// computes. Both see the same batches.
//
//   prefetch --devices 2
//   prefetch --devices 1 --workers 0 --timeline steps

#include <lockstep/lockstep.hpp>

#include "models/image_models.hpp"
#include "support/arguments.hpp"
#include "support/devices.hpp"
#include "support/timeline_file.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <string>
#include <vector>

namespace ls = lockstep;

namespace {

using Sample = std::array<ls::Tensor, 2>;  // an image [1, 28, 28] and its label

// Turns an image by up to 15 degrees, scales it by up to a tenth and moves it by up to two pixels.
// Interpolates between pixels; beyond its edges the image is black.
Sample jitter(const Sample& sample, ls::Generator& generator) {
  constexpr std::int64_t kSide = ls::data::FashionMnist::kSide;
  const auto between = [&](double limit) { return limit * (2 * generator.uniform() - 1); };
  const double angle = between(0.26);
  const double scale = 1 + between(0.1);
  const double centre = (kSide - 1) / 2.0;
  const double right = centre + between(2);
  const double down = centre + between(2);
  const double cos = std::cos(angle) / scale;
  const double sin = std::sin(angle) / scale;

  const ls::Tensor turned = ls::empty(sample[0].sizes());
  const float* from = sample[0].const_data_ptr<float>();
  float* to = turned.mutable_data_ptr<float>();
  const auto pixel = [from](std::int64_t row, std::int64_t column) {
    const bool inside = row >= 0 && row < kSide && column >= 0 && column < kSide;
    return inside ? from[row * kSide + column] : 0.0F;
  };
  for (std::int64_t y = 0; y < kSide; ++y) {
    for (std::int64_t x = 0; x < kSide; ++x) {
      const double dx = static_cast<double>(x) - right;
      const double dy = static_cast<double>(y) - down;
      const double column = cos * dx + sin * dy + centre;
      const double row = cos * dy - sin * dx + centre;
      const auto left = static_cast<std::int64_t>(std::floor(column));
      const auto top = static_cast<std::int64_t>(std::floor(row));
      const auto a = static_cast<float>(column - static_cast<double>(left));
      const auto b = static_cast<float>(row - static_cast<double>(top));
      *to++ = (1 - b) * ((1 - a) * pixel(top, left) + a * pixel(top, left + 1)) +
              b * ((1 - a) * pixel(top + 1, left) + a * pixel(top + 1, left + 1));
    }
  }
  return {turned, sample[1]};
}

struct Settings {
  std::string devices;
  std::filesystem::path data = ls::data::kFashionMnistDirectory;
  std::int64_t batch_size = 256;
  std::int64_t workers = 1;
  std::int64_t depth = 2;
  std::int64_t steps = 200;
  std::uint64_t seed = 0;
  std::string timeline;
};

// Trains for some steps on the batches of a range, and prints how long a step took.
template <class Batches>
void train(const std::string& how, Batches& batches, const std::vector<ls::Device>& devices,
           const Settings& settings) {
  using Clock = std::chrono::steady_clock;
  ls::manual_seed(settings.seed);
  ls::DataParallelModel model{example::make_mlp(ls::Dtype::f32), devices};
  ls::DataParallelCriterion criterion{ls::nn::CrossEntropyLoss{}};
  ls::optim::SGD sgd{model.parameters(), {.lr = 0.05, .momentum = 0.9}};
  example::TimelineFile timeline(
      settings.timeline.empty() ? std::string() : settings.timeline + '.' + how + ".json");
  std::int64_t step = 0;
  double loss = 0;
  auto before = Clock::now();
  std::vector<double> times;
  for (auto [images, labels] : batches) {
    timeline.begin_step();
    const ls::profile::RecordFunction range("step");
    const ls::Tensor mean = criterion(model(images), labels);
    sgd.zero_grad();
    mean.backward();
    sgd.step();
    loss = mean.item();
    const auto now = Clock::now();
    times.push_back(std::chrono::duration<double, std::milli>(now - before).count());
    before = now;
    if (++step == settings.steps) break;
  }
  timeline.finish();
  std::sort(times.begin(), times.end());
  std::cout << how << " prefetch: " << std::fixed << std::setprecision(2) << times[times.size() / 2]
            << " ms a step, loss " << std::setprecision(6) << loss << " after " << step << " steps"
            << std::endl;
}

void compare(const Settings& settings) {
  const auto devices = example::choose_devices(settings.devices);
  const ls::data::MapDataset dataset{ls::data::FashionMnist(settings.data), jitter};
  const ls::data::DataLoaderOptions options{
      .batch_size = settings.batch_size, .shuffle = true, .seed = settings.seed};
  ls::data::DataLoader between{dataset, options};
  train("without", between, devices, settings);

  ls::data::DataLoaderOptions with_workers = options;
  with_workers.num_workers = settings.workers;
  ls::data::DataLoader ahead{dataset, with_workers};
  auto batches = ls::data::prefetch(ahead, devices, {.depth = settings.depth});
  train("with", batches, devices, settings);
}

Settings parse(int argc, char** argv) {
  Settings settings;
  example::Arguments arguments("Shows what it saves to make the next batch during a step.");
  arguments.add("--devices", settings.devices,
                "a number, or a list such as cpu:0,cpu:1; all there are by default");
  arguments.add("--batch-size", settings.batch_size, "images a step, over all devices");
  arguments.add("--workers", settings.workers, "threads that load, beside the one that copies");
  arguments.add("--depth", settings.depth, "batches that are ready ahead of the step");
  arguments.add("--steps", settings.steps, "of each kind");
  arguments.add("--seed", settings.seed, "of the first weights, the shuffling and the jitter");
  arguments.add("--data", settings.data, "the directory of the four idx files");
  arguments.add("--timeline", settings.timeline,
                "the start of the names of two .json files for Perfetto, of steps 6 to 25");
  arguments.parse(argc, argv);
  return settings;
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(argv[0], [&] { compare(parse(argc, argv)); });
}
