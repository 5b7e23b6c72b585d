// SPDX-License-Identifier: Apache-2.0
//
// What copies cost that are queued back to back on a host device's copy stream, against memcpy of
// the same bytes between the same buffers. Both are measured in turn, so that a noisy machine is
// noisy for both; `of_memcpy` is the ratio of the medians, 1 if the stream costs nothing.
#include <lockstep/autograd/variable.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double median(std::vector<double>& seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds.empty() ? 0 : seconds[seconds.size() / 2];
}

// One iteration is as many copies as make 64 MiB, 16 at least.
void queued_copies(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const std::size_t count = std::max<std::size_t>(16, (std::size_t{64} << 20) / bytes);
  const Device device("cpu:0");
  const Stream stream = copy_stream(device);
  std::vector<Tensor> sources;
  std::vector<Tensor> destinations;
  for (std::size_t i = 0; i < 4; ++i) {
    const auto elements = static_cast<std::int64_t>(bytes);
    sources.push_back(ones({elements}, {.dtype = Dtype::u8}));
    destinations.push_back(zeros({elements}, {.dtype = Dtype::u8, .device = device}));
  }
  auto& backend = detail::HostBackend::instance();
  std::vector<double> plain;
  std::vector<double> queued;
  for (auto _ : state) {
    const auto start = Clock::now();
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(destinations[i % 4].impl()->data(), sources[i % 4].impl()->data(), bytes);
      benchmark::ClobberMemory();
    }
    const auto between = Clock::now();
    for (std::size_t i = 0; i < count; ++i) {
      backend.copy({destinations[i % 4].impl()->data(), device, sources[i % 4].impl()->data(),
                    Device(), lockstep::detail::Pitched{bytes}, &stream.state()});
    }
    stream.synchronize();
    const auto end = Clock::now();
    plain.push_back(std::chrono::duration<double>(between - start).count());
    queued.push_back(std::chrono::duration<double>(end - between).count());
  }
  const double one = median(plain);
  const double other = median(queued);
  const double total = static_cast<double>(bytes * count);
  state.counters["memcpy_GB/s"] = total / one / 1e9;
  state.counters["queued_GB/s"] = total / other / 1e9;
  state.counters["of_memcpy"] = one / other;
}

BENCHMARK(queued_copies)
    ->RangeMultiplier(4)
    ->Range(std::int64_t{64} << 10, std::int64_t{64} << 20)
    ->Iterations(50)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::set_host_device_count(1);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
