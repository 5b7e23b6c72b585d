// SPDX-License-Identifier: Apache-2.0
//
// A whole training step (forward, loss, backward, optimiser) of three models on one host device and
// on two, the smallest also on up to 16, one maths thread a device: tiny (Linear 5 → 2, batch 30),
// MLP (784-512-512-10, batch 256) and CNN (the demo's, batch 128). `plain` calls the module without
// DataParallel. Compare medians:
//   train_benchmark --benchmark_repetitions=9 --benchmark_report_aggregates_only
#include <lockstep/lockstep.hpp>

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

namespace ls = lockstep;

struct Tiny {
  ls::nn::Linear fc{5, 2};
  ls::Tensor forward(const ls::Tensor& x) { return fc(x); }

  static ls::Tensor input() { return ls::randn({30, 5}); }
  static ls::Tensor target() { return ls::randn({30, 2}); }
  static ls::Tensor loss(const ls::Tensor& y, const ls::Tensor& t) { return ls::mse_loss(y, t); }
};

ls::Tensor some_labels(std::int64_t count) {
  std::vector<std::int64_t> labels(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int64_t>(i % 10);
  return ls::from_values(labels, {count});
}

struct Mlp {
  ls::nn::Linear fc1{784, 512}, fc2{512, 512}, fc3{512, 10};
  ls::Tensor forward(const ls::Tensor& x) { return fc3(ls::relu(fc2(ls::relu(fc1(x))))); }

  static ls::Tensor input() { return ls::randn({256, 784}); }
  static ls::Tensor target() { return some_labels(256); }
  static ls::Tensor loss(const ls::Tensor& y, const ls::Tensor& t) {
    return ls::cross_entropy(y, t);
  }
};

struct Cnn {
  ls::nn::Conv2d conv1{1, 32, 5}, conv2{32, 64, 5};
  ls::nn::Linear fc1{64 * 4 * 4, 512}, fc2{512, 10};
  ls::Tensor forward(const ls::Tensor& images) {
    ls::Tensor x = ls::relu(ls::max_pool2d(conv1(images), 2));
    x = ls::relu(ls::max_pool2d(conv2(x), 2));
    return fc2(ls::relu(fc1(ls::flatten(x, 1))));
  }

  static ls::Tensor input() { return ls::randn({128, 1, 28, 28}); }
  static ls::Tensor target() { return some_labels(128); }
  static ls::Tensor loss(const ls::Tensor& y, const ls::Tensor& t) {
    return ls::cross_entropy(y, t);
  }
};

template <class Net, class Call>
void run(benchmark::State& state, const std::vector<ls::Tensor>& parameters, ls::Device device,
         Call call) {
  ls::optim::SGD sgd{parameters, {.lr = 0.01, .momentum = 0.9}};
  const ls::Tensor input = Net::input();
  const ls::Tensor target = Net::target().to(device);
  for ([[maybe_unused]] auto step : state) {
    const ls::Tensor loss = Net::loss(call(input), target);
    sgd.zero_grad();
    loss.backward();
    sgd.step();
    benchmark::DoNotOptimize(loss.item());
  }
}

template <class M>
std::vector<ls::Tensor> tensors(const M& module) {
  const auto parameters = ls::parameters(module);
  return {parameters.begin(), parameters.end()};
}

template <class Net>
void plain(benchmark::State& state) {
  Net net;
  const ls::Device device = "cpu:0";
  ls::to(net, device);
  run<Net>(state, tensors(net), device,
           [&](const ls::Tensor& x) { return net.forward(x.to(device)); });
}

template <class Net>
void data_parallel(benchmark::State& state) {
  std::vector<ls::Device> devices = ls::host_devices();
  devices.resize(static_cast<std::size_t>(state.range(0)));
  ls::DataParallel model{Net{}, devices};
  run<Net>(state, tensors(model), model.output_device(),
           [&](const ls::Tensor& x) { return model(x); });
}

BENCHMARK(plain<Tiny>)->UseRealTime();
BENCHMARK(data_parallel<Tiny>)->ArgName("devices")->RangeMultiplier(2)->Range(1, 16)->UseRealTime();
BENCHMARK(plain<Mlp>)->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(data_parallel<Mlp>)
    ->ArgName("devices")
    ->Arg(1)
    ->Arg(2)
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(plain<Cnn>)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(data_parallel<Cnn>)
    ->ArgName("devices")
    ->Arg(1)
    ->Arg(2)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace

int main(int argc, char** argv) {
  ls::set_host_device_count(16);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
