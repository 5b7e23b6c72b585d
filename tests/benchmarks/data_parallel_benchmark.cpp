// SPDX-License-Identifier: Apache-2.0
//
// What DataParallel and parallel_apply add to the calls of the modules themselves.
//
// `call<…>` is one call of a module on one device, on an input that is there: plain, through a
// DataParallel without devices, and with one. Empty returns its input, Linear has two parameters to
// look at. `apply_two/team` dispatches two empty replicas and joins them, `apply_two/fresh_threads`
// does what torch does: it starts a thread a replica; `apply_two/run_team` is two empty functions.
// Time is the mean of one call, p50 the median of single calls in nanoseconds, which includes one
// look at the clock (20–40 ns).
#include <lockstep/backend/threads/worker_team.hpp>
#include <lockstep/lockstep.hpp>
#include <lockstep/parallel/comm/detail/transfer.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <thread>
#include <vector>

namespace {

namespace ls = lockstep;
using Clock = std::chrono::steady_clock;

struct Empty {
  ls::Tensor forward(const ls::Tensor& x) const { return x; }
};
struct Linear {
  ls::nn::Linear fc{5, 2};
  ls::Tensor forward(const ls::Tensor& x) { return fc(x); }
};

ls::Tensor input() { return ls::ones({30, 5}, {.device = "cpu:0"}); }

template <class Call>
void measure(benchmark::State& state, Call call) {
  std::vector<Clock::duration> calls;
  calls.reserve(1U << 22U);
  Clock::time_point before = Clock::now();
  for ([[maybe_unused]] auto step : state) {
    call();
    const Clock::time_point now = Clock::now();
    if (calls.size() < calls.capacity()) calls.push_back(now - before);
    before = now;
  }
  const auto middle = calls.begin() + static_cast<std::ptrdiff_t>(calls.size() / 2);
  std::nth_element(calls.begin(), middle, calls.end());
  state.counters["p50"] =
      static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(*middle).count());
}

template <class M>
void plain(benchmark::State& state) {
  const ls::NoGradGuard guard;
  M module;
  ls::to(module, "cpu:0");
  const ls::Tensor x = input();
  measure(state, [&] { benchmark::DoNotOptimize(module.forward(x)); });
}

template <class M>
void no_devices(benchmark::State& state) {
  const ls::NoGradGuard guard;
  M module;
  ls::to(module, "cpu:0");
  ls::DataParallel model{std::move(module), std::nullopt};
  const ls::Tensor x = input();
  measure(state, [&] { benchmark::DoNotOptimize(model(x)); });
}

template <class M>
void one_device(benchmark::State& state) {
  const ls::NoGradGuard guard;
  ls::DataParallel model{M{}, {"cpu:0"}};
  const ls::Tensor x = input();
  const auto copies = ls::comm::detail::copies_issued().load();
  measure(state, [&] { benchmark::DoNotOptimize(model(x)); });
  state.counters["copies"] = static_cast<double>(ls::comm::detail::copies_issued().load() - copies);
}

void team(benchmark::State& state) {
  std::vector<Empty> replicas(2);
  const std::vector<ls::Tensor> inputs = {input(), input()};
  measure(state, [&] { benchmark::DoNotOptimize(ls::parallel_apply(replicas, inputs)); });
}

// The threads alone: what parallel_apply cannot be faster than.
void run_team(benchmark::State& state) {
  const auto empty = [](std::size_t index) { benchmark::DoNotOptimize(index); };
  measure(state, [&] { ls::detail::run_team(2, empty); });
}

void fresh_threads(benchmark::State& state) {
  std::vector<Empty> replicas(2);
  const std::vector<ls::Tensor> inputs = {input(), input()};
  measure(state, [&] {
    std::vector<ls::Tensor> outputs(2);
    std::thread first([&] { outputs[0] = replicas[0].forward(inputs[0]); });
    std::thread second([&] { outputs[1] = replicas[1].forward(inputs[1]); });
    first.join();
    second.join();
    benchmark::DoNotOptimize(outputs);
  });
}

BENCHMARK(plain<Empty>)->Name("call<Empty>/plain")->UseRealTime();
BENCHMARK(no_devices<Empty>)->Name("call<Empty>/no_devices")->UseRealTime();
BENCHMARK(one_device<Empty>)->Name("call<Empty>/one_device")->UseRealTime();
BENCHMARK(plain<Linear>)->Name("call<Linear>/plain")->UseRealTime();
BENCHMARK(no_devices<Linear>)->Name("call<Linear>/no_devices")->UseRealTime();
BENCHMARK(one_device<Linear>)->Name("call<Linear>/one_device")->UseRealTime();
BENCHMARK(team)->Name("apply_two/team")->UseRealTime();
BENCHMARK(run_team)->Name("apply_two/run_team")->UseRealTime();
BENCHMARK(fresh_threads)->Name("apply_two/fresh_threads")->UseRealTime();

}  // namespace

int main(int argc, char** argv) {
  ls::set_host_device_count(2);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
