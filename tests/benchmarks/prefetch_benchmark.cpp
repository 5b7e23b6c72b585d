// SPDX-License-Identifier: Apache-2.0
//
// How much of the loading prefetch hides: training steps on one host device, with one maths thread,
// of batches that are made by real work. Time is that of one step.
//
//   step            on a batch that lies ready on the device
//   load            of a batch alone
//   one_by_one      load, copy, step
//   prefetched/W    with a DataLoader of W workers behind prefetch
//
// "even" is work on a batch that takes as long as a step, "loading" work that takes twice as long.
// `of_step` and `of_load` compare the mean with the processor time that a step and a load take
// alone.
#include <lockstep/lockstep.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <span>
#include <string>
#include <vector>

#include <time.h>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kRows = 512;
constexpr std::int64_t kFeatures = 784;
const Device kDevice("cpu:0");

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// Samples that are computed: `effort` rounds of arithmetic for each number.
struct Computed {
  std::int64_t effort = 1;

  std::int64_t size() const { return kRows * 2000; }
  std::array<Tensor, 2> get_batch(std::span<const std::int64_t> indices) const {
    const auto rows = static_cast<std::int64_t>(indices.size());
    const Tensor images = empty({rows, kFeatures});
    const Tensor labels = empty({rows}, {.dtype = Dtype::i64});
    auto* pixel = images.mutable_data_ptr<float>();
    auto* label = labels.mutable_data_ptr<std::int64_t>();
    for (const std::int64_t index : indices) {
      for (std::int64_t i = 0; i < kFeatures; ++i) {
        auto state = static_cast<std::uint64_t>(index * kFeatures + i + 1);
        for (std::int64_t round = 0; round < effort; ++round) {
          state = state * 6364136223846793005U + 1442695040888963407U;
        }
        *pixel++ = static_cast<float>(state >> 40U) * 0x1p-24F;
      }
      *label++ = index % 10;
    }
    return {images, labels};
  }
};

struct Net {
  nn::Linear first{kFeatures, 512}, second{512, 10};
  Tensor forward(const Tensor& x) { return second(relu(first(x))); }
};

struct Training {
  DataParallelModel<Net> model{Net{}, {kDevice}};
  DataParallelCriterion<nn::CrossEntropy> criterion{nn::CrossEntropy{}};
  optim::SGD sgd{model.parameters(), {.lr = 0.01}};

  template <class X, class Y>
  void step(const X& images, const Y& labels) {
    sgd.zero_grad();
    criterion(model(images), labels).backward();
    sgd.step();
    current_stream(kDevice).synchronize();
  }
};

// What `body` takes of its thread's processor, so that a busy machine does not make it longer.
template <class Body>
double work_of(int times, const Body& body) {
  const auto now = [] {
    std::timespec time{};
    (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  std::vector<double> taken;
  for (int i = 0; i < times; ++i) {
    const double start = now();
    body();
    taken.push_back(now() - start);
  }
  return median(taken);
}

// What a step takes, and the efforts at which loading a batch takes as long, and twice as long.
struct Calibration {
  double step;
  std::array<std::int64_t, 2> effort{};
  std::array<double, 2> load{};

  Calibration() {
    Training training;
    const Tensor images = ones({kRows, kFeatures}, {.device = kDevice});
    const Tensor labels = zeros({kRows}, {.dtype = Dtype::i64, .device = kDevice});
    const auto step_once = [&] {
      training.step(Scattered(std::vector{images}), Scattered(std::vector{labels}));
    };
    (void)work_of(20, step_once);
    step = work_of(60, step_once);
    const std::vector<std::int64_t> indices(kRows);
    for (std::size_t i = 0; i < 2; ++i) {
      const double wanted = static_cast<double>(i + 1) * step;
      effort[i] = 50;
      for (int look = 0; look < 4; ++look) {
        load[i] =
            work_of(20, [&] { benchmark::DoNotOptimize(Computed{effort[i]}.get_batch(indices)); });
        if (look == 3) break;
        effort[i] = static_cast<std::int64_t>(static_cast<double>(effort[i]) * wanted / load[i]);
      }
    }
  }

  static const Calibration& get() {
    static const Calibration calibration;
    return calibration;
  }
};

template <class Body>
void measure(benchmark::State& state, std::size_t work, const Body& body) {
  const Calibration& calibration = Calibration::get();
  std::vector<double> taken;
  auto before = Clock::now();
  for (auto _ : state) {
    body();
    const auto now = Clock::now();
    taken.push_back(seconds(now - before));
    before = now;
  }
  // Of the mean: a step that waits for two others' work shows in it.
  double sum = 0;
  for (const double each : taken) sum += each;
  const double mean = sum / static_cast<double>(taken.size());
  state.counters["of_step"] = mean / calibration.step;
  state.counters["of_load"] = mean / calibration.load[work];
  state.counters["median_ms"] = 1e3 * median(taken);
}

void step(benchmark::State& state) {
  Training training;
  const Tensor images = ones({kRows, kFeatures}, {.device = kDevice});
  const Tensor labels = zeros({kRows}, {.dtype = Dtype::i64, .device = kDevice});
  measure(state, 0,
          [&] { training.step(Scattered(std::vector{images}), Scattered(std::vector{labels})); });
}

void load(benchmark::State& state, std::size_t work) {
  data::DataLoader loader{Computed{Calibration::get().effort[work]}, {.batch_size = kRows}};
  auto batch = loader.begin();
  measure(state, work, [&] { ++batch; });
}

void one_by_one(benchmark::State& state, std::size_t work) {
  Training training;
  data::DataLoader loader{Computed{Calibration::get().effort[work]}, {.batch_size = kRows}};
  auto batch = loader.begin();
  measure(state, work, [&] {
    const auto& [images, labels] = *batch;
    training.step(images, labels);
    ++batch;
  });
}

void prefetched(benchmark::State& state, std::size_t work, std::int64_t workers) {
  Training training;
  data::DataLoader loader{Computed{Calibration::get().effort[work]},
                          {.batch_size = kRows, .num_workers = workers}};
  auto range = data::prefetch(loader, training.model.devices());
  auto batch = range.begin();
  for (int i = 0; i < 5; ++i) ++batch;
  measure(state, work, [&] {
    const auto& [images, labels] = *batch;
    training.step(images, labels);
    ++batch;
  });
}

void register_all() {
  const auto add = [](const std::string& name, const auto& body) {
    benchmark::RegisterBenchmark(name.c_str(), body)
        ->Iterations(200)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  };
  add("step", step);
  const char* const works[] = {"even", "loading"};
  for (std::size_t work = 0; work < 2; ++work) {
    const std::string suffix = std::string("/") + works[work];
    add("load" + suffix, [work](benchmark::State& state) { load(state, work); });
    add("one_by_one" + suffix, [work](benchmark::State& state) { one_by_one(state, work); });
    for (const std::int64_t workers : {0, 1}) {
      add("prefetched/" + std::to_string(workers) + suffix,
          [work, workers](benchmark::State& state) { prefetched(state, work, workers); });
    }
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::set_host_device_count(1);
  benchmark::Initialize(&argc, argv);
  lockstep::register_all();
  benchmark::RunSpecifiedBenchmarks();
}
