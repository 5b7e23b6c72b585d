// SPDX-License-Identifier: Apache-2.0
//
// What it costs to run n empty shares at once and wait for them. The column Time is the mean of one
// call; p50, p90 and p99 are quantiles of single calls in nanoseconds and include one look at the
// clock (20–40 ns). `…/busy` runs beside a thread that never rests; `parked_team` starts each call
// when all workers have gone to park (the standard library looks a few times more before it
// sleeps).
#include <lockstep/backend/threads/worker_team.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

namespace lockstep::detail {
namespace {

using Clock = std::chrono::steady_clock;

// A neighbour that keeps one core busy, or would if it had one to itself.
class BusyNeighbour {
 public:
  explicit BusyNeighbour(bool wanted) {
    if (wanted) {
      thread_ = std::jthread([](const std::stop_token& stop) {
        while (!stop.stop_requested()) benchmark::DoNotOptimize(stop);
      });
    }
  }

 private:
  std::jthread thread_;
};

class Quantiles {
 public:
  Quantiles() { calls_.reserve(1U << 22U); }

  void add(Clock::duration call) {
    if (calls_.size() < calls_.capacity()) calls_.push_back(call);
  }

  void report(benchmark::State& state) {
    if (calls_.empty()) return;
    std::sort(calls_.begin(), calls_.end());
    const auto at = [&](std::size_t percent) {
      const auto call = calls_[(calls_.size() - 1) * percent / 100];
      return static_cast<double>(std::chrono::nanoseconds(call).count());
    };
    state.counters["p50"] = at(50);
    state.counters["p90"] = at(90);
    state.counters["p99"] = at(99);
  }

 private:
  std::vector<Clock::duration> calls_;
};

template <class F>
void measure(benchmark::State& state, F&& call) {
  Quantiles quantiles;
  Clock::time_point before = Clock::now();
  for (auto _ : state) {
    call();
    const Clock::time_point now = Clock::now();
    quantiles.add(now - before);
    before = now;
  }
  quantiles.report(state);
}

void team(benchmark::State& state, bool busy) {
  const BusyNeighbour neighbour(busy);
  const auto n = static_cast<std::size_t>(state.range(0));
  const auto empty = [](std::size_t index) { benchmark::DoNotOptimize(index); };
  run_team(n, empty);
  const TeamStats before = team_stats();
  measure(state, [&] { run_team(n, empty); });
  const auto wake_ups = static_cast<double>(team_stats().wake_ups - before.wake_ups);
  state.counters["woken_per_call"] =
      benchmark::Counter(wake_ups, benchmark::Counter::kAvgIterations);
}

void parked_team(benchmark::State& state) {
  const auto n = static_cast<std::size_t>(state.range(0));
  const auto empty = [](std::size_t index) { benchmark::DoNotOptimize(index); };
  run_team(n, empty);
  Quantiles quantiles;
  for (auto _ : state) {
    for (TeamStats now = team_stats(); now.parks - now.wake_ups != now.threads_created;) {
      std::this_thread::yield();
      now = team_stats();
    }
    const Clock::time_point before = Clock::now();
    run_team(n, empty);
    const Clock::duration call = Clock::now() - before;
    quantiles.add(call);
    state.SetIterationTime(std::chrono::duration<double>(call).count());
  }
  quantiles.report(state);
}

void fresh_threads(benchmark::State& state, bool busy) {
  const BusyNeighbour neighbour(busy);
  measure(state, [] {
    std::thread first([] {});
    std::thread second([] {});
    first.join();
    second.join();
  });
}

BENCHMARK_CAPTURE(team, free, false)->Arg(2)->Arg(3)->Arg(4)->Arg(8)->UseRealTime();
BENCHMARK_CAPTURE(team, busy, true)->Arg(2)->Arg(3)->Arg(4)->Arg(8)->UseRealTime();
BENCHMARK(parked_team)->Arg(2)->Arg(3)->Arg(4)->Arg(8)->UseManualTime()->Iterations(2000);
BENCHMARK_CAPTURE(fresh_threads, free, false)->UseRealTime();
BENCHMARK_CAPTURE(fresh_threads, busy, true)->UseRealTime();

}  // namespace
}  // namespace lockstep::detail

BENCHMARK_MAIN();
