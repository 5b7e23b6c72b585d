// SPDX-License-Identifier: Apache-2.0
//
// What a range costs while nothing is recorded, and while a Profiler records; and a training step
// whose model is so small that it is nearly nothing but calls. `nothing` is the loop itself.
#include <lockstep/autograd/engine.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/profile/profiler.hpp>
#include <lockstep/tensor/random.hpp>

#include <benchmark/benchmark.h>

#include <cstddef>
#include <optional>
#include <string>

namespace lockstep::profile {
namespace {

// Room for what a benchmark records; behind that a range is counted and dropped, which costs less.
constexpr std::size_t kMost = std::size_t{1} << 24;

void nothing(benchmark::State& state) {
  for (auto _ : state) benchmark::ClobberMemory();
}

void range(benchmark::State& state, bool on) {
  std::optional<Profiler> profiler;
  if (on) profiler.emplace(ProfilerOptions{.max_events = kMost});
  const Device device("cpu:1");
  for (auto _ : state) {
    const RecordFunction scope("range", device, {.bytes = 8});
    benchmark::ClobberMemory();
  }
}

void named_range(benchmark::State& state, bool on) {
  std::optional<Profiler> profiler;
  if (on) profiler.emplace(ProfilerOptions{.max_events = kMost});
  const std::string name = "a name that was made at run time";
  for (auto _ : state) {
    const RecordFunction scope(name);
    benchmark::ClobberMemory();
  }
}

void tiny_step(benchmark::State& state, bool on) {
  DataParallel model{nn::Linear{4, 4}, {"cpu:0", "cpu:1"}};
  optim::SGD sgd{model.parameters()};
  const Tensor input = randn({8, 4});
  std::optional<Profiler> profiler;
  if (on) profiler.emplace(ProfilerOptions{.max_events = kMost});
  for (auto _ : state) {
    sgd.zero_grad();
    model(input).sum().backward();
    sgd.step();
  }
}

BENCHMARK(nothing);
BENCHMARK_CAPTURE(range, off, false);
BENCHMARK_CAPTURE(range, on, true);
BENCHMARK_CAPTURE(named_range, off, false);
BENCHMARK_CAPTURE(named_range, on, true);
BENCHMARK_CAPTURE(tiny_step, off, false)->UseRealTime();
BENCHMARK_CAPTURE(tiny_step, on, true)->UseRealTime();

}  // namespace
}  // namespace lockstep::profile

int main(int argc, char** argv) {
  lockstep::set_host_device_count(2);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
