// SPDX-License-Identifier: Apache-2.0
//
// The collectives over two host devices, from 8 bytes to 64 MiB, and beside each what two threads
// of plain memcpy (or of additions) reach on the same bytes.
//
// Bytes: the whole tensor for scatter and gather, each copy for broadcast, each summand for
// reduce_add. The time of a call ends when the results are there on both devices.
// "fresh" means that the results lie in memory that comes from the system for each call; where
// nothing is said, they lie in memory that the devices kept.
#include "fresh_memory.hpp"

#include <lockstep/backend/threads/worker_team.hpp>
#include <lockstep/parallel/comm.hpp>
#include <lockstep/tensor/creation.hpp>

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <malloc.h>

namespace lockstep {
namespace {

using fresh_memory::filled;

const std::vector<Device>& two_devices() {
  static const std::vector<Device> devices{"cpu:0", "cpu:1"};
  return devices;
}

void finish() {
  for (const Device device : two_devices()) synchronize(device);
}

void count_bytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

struct Scatter {
  Tensor whole;
  explicit Scatter(std::int64_t bytes) : whole(filled(bytes, Device())) {}
  auto operator()() const { return comm::scatter(whole, two_devices()); }
};

struct Halves {
  std::vector<Tensor> parts;
  explicit Halves(std::int64_t bytes)
      : parts{filled(bytes / 2, "cpu:0"), filled(bytes / 2, "cpu:1")} {}
};

struct Gather : Halves {
  using Halves::Halves;
  auto operator()() const { return comm::gather(parts, 0, Device()); }
};

struct GatherOnDevice : Halves {
  using Halves::Halves;
  auto operator()() const { return comm::gather(parts, 0, Device("cpu:0")); }
};

struct Broadcast {
  Tensor source;
  explicit Broadcast(std::int64_t bytes) : source(filled(bytes, "cpu:0")) {}
  auto operator()() const { return comm::broadcast(source, two_devices()); }
};

struct BroadcastFromCpu {
  Tensor source;
  explicit BroadcastFromCpu(std::int64_t bytes) : source(filled(bytes, Device())) {}
  auto operator()() const { return comm::broadcast(source, two_devices()); }
};

struct ReduceAdd {
  std::vector<Tensor> parts;
  explicit ReduceAdd(std::int64_t bytes) : parts{filled(bytes, "cpu:0"), filled(bytes, "cpu:1")} {}
  auto operator()() const { return comm::reduce_add(parts, Device("cpu:0")); }
};

struct ReduceAddOnCpu {
  std::vector<Tensor> parts;
  explicit ReduceAddOnCpu(std::int64_t bytes)
      : parts{filled(bytes, Device()), filled(bytes, "cpu:1")} {}
  auto operator()() const { return comm::reduce_add(parts, Device()); }
};

template <class Collective>
void kept(benchmark::State& state) {
  const Collective call(state.range(0));
  for (auto _ : state) {
    benchmark::DoNotOptimize(call());
    finish();
  }
  count_bytes(state);
}

template <class Collective>
void fresh(benchmark::State& state) {
  using Clock = std::chrono::steady_clock;
  const Collective call(state.range(0));
  for (auto _ : state) {
    fresh_memory::give_back(two_devices());
    const Clock::time_point start = Clock::now();
    const auto results = call();
    finish();
    state.SetIterationTime(std::chrono::duration<double>(Clock::now() - start).count());
  }
  count_bytes(state);
}

// Two threads, each with half of the bytes.
template <class Work>
void halves(benchmark::State& state, Work work) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<float> from(bytes / sizeof(float), 1.0F);
  std::vector<float> other(from);
  std::vector<float> to(from.size());
  for (auto _ : state) {
    detail::run_team(2, [&](std::size_t i) {
      const std::size_t half = from.size() / 2;
      work(to.data() + i * half, from.data() + i * half, other.data() + i * half, half);
    });
  }
  count_bytes(state);
}

void two_memcpy(benchmark::State& state) {
  halves(state, [](float* to, const float* from, const float*, std::size_t count) {
    std::memcpy(to, from, count * sizeof(float));
  });
}

void two_adds(benchmark::State& state) {
  halves(state, [](float* to, const float* a, const float* b, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) to[i] = a[i] + b[i];
  });
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  for (const std::int64_t bytes : {8, 1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 26}) {
    benchmark->Arg(bytes);
  }
  benchmark->UseRealTime();
}

void large_sizes(benchmark::internal::Benchmark* benchmark) {
  for (const std::int64_t bytes : {1 << 20, 1 << 24, 1 << 26}) benchmark->Arg(bytes);
  benchmark->UseManualTime();
}

BENCHMARK(two_memcpy)->Apply(sizes);
BENCHMARK(kept<Scatter>)->Name("scatter")->Apply(sizes);
BENCHMARK(kept<Gather>)->Name("gather")->Apply(sizes);
BENCHMARK(kept<GatherOnDevice>)->Name("gather_on_device")->Apply(sizes);
BENCHMARK(kept<Broadcast>)->Name("broadcast")->Apply(sizes);
BENCHMARK(kept<BroadcastFromCpu>)->Name("broadcast_from_cpu")->Apply(sizes);
BENCHMARK(two_adds)->Apply(sizes);
BENCHMARK(kept<ReduceAdd>)->Name("reduce_add")->Apply(sizes);
BENCHMARK(kept<ReduceAddOnCpu>)->Name("reduce_add_on_cpu")->Apply(sizes);
BENCHMARK(fresh<Scatter>)->Name("scatter/fresh")->Apply(large_sizes);
BENCHMARK(fresh<Gather>)->Name("gather/fresh")->Apply(large_sizes);
BENCHMARK(fresh<Broadcast>)->Name("broadcast/fresh")->Apply(large_sizes);
BENCHMARK(fresh<ReduceAdd>)->Name("reduce_add/fresh")->Apply(large_sizes);

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  // Without this malloc keeps large blocks that are given back to it, and fresh memory is not
  // fresh.
  mallopt(M_MMAP_THRESHOLD, 1 << 16);
  lockstep::set_host_device_count(2);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
