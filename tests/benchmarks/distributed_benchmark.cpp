// SPDX-License-Identifier: Apache-2.0
//
// The collectives of a process group whose two ranks are threads, from 4 bytes to 16 MiB: where the
// caller waits within the call, and where it waits for the Work of the communication thread. Bytes:
// the tensor that each rank brings.
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/tensor/creation.hpp>

#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

namespace lockstep {
namespace {

// Rank 0 is timed; the other does as much.
template <class Operation>
void between_two(benchmark::State& state, const Operation& operation) {
  const std::vector<Device> devices{"cpu:0", "cpu:1"};
  distributed::run(devices, [&](const distributed::ProcessGroup& group) {
    const std::int64_t count = state.range(0) / static_cast<std::int64_t>(sizeof(float));
    const Tensor tensor = zeros({count}, {.device = group.device()});
    for (int i = 0; i < 3; ++i) operation(group, tensor);
    if (group.rank() == 0) {
      for ([[maybe_unused]] auto _ : state) operation(group, tensor);
    } else {
      for (auto i = state.max_iterations; i > 0; --i) operation(group, tensor);
    }
  });
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void all_reduce(benchmark::State& state) {
  between_two(state, [](const distributed::ProcessGroup& group, const Tensor& tensor) {
    (void)group.blocking().all_reduce(tensor);
  });
}

void all_reduce_in_background(benchmark::State& state) {
  between_two(state, [](const distributed::ProcessGroup& group, const Tensor& tensor) {
    group.all_reduce(tensor).wait();
  });
}

void broadcast(benchmark::State& state) {
  between_two(state, [](const distributed::ProcessGroup& group, const Tensor& tensor) {
    (void)group.blocking().broadcast(tensor);
  });
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->UseRealTime();
  for (const std::int64_t bytes : {4, 1 << 10, 4 << 10, 64 << 10, 1 << 20, 16 << 20}) {
    benchmark->Arg(bytes);
  }
}

BENCHMARK(all_reduce)->Apply(sizes);
BENCHMARK(all_reduce_in_background)->Apply(sizes);
BENCHMARK(broadcast)->Apply(sizes);

}  // namespace
}  // namespace lockstep

BENCHMARK_MAIN();
