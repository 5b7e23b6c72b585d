// SPDX-License-Identifier: Apache-2.0
//
// The operations that training time goes into, at the sizes of an MLP and a CNN for Fashion-MNIST:
// matrix products in the three forms of a linear layer, the passes of two convolutions and what
// lies around them. `…/threads:2` runs the same from two threads at once, each on a host device of
// its own, as two replicas do; its Time is of both. One maths thread a caller.
#include <lockstep/autograd/engine.hpp>
#include <lockstep/backend/host/blas.hpp>
#include <lockstep/ops/conv.hpp>
#include <lockstep/ops/linear.hpp>
#include <lockstep/ops/loss.hpp>
#include <lockstep/ops/matmul.hpp>
#include <lockstep/ops/pooling.hpp>
#include <lockstep/tensor/creation.hpp>

#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

namespace lockstep {
namespace {

// Values without subnormals, on the device of the benchmark's thread.
Tensor filled(const benchmark::State& state, const Shape& shape) {
  const Device device(DeviceType::cpu, state.thread_index());
  std::vector<float> values(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i % 17) * 0.01F - 0.07F;
  }
  return from_values(values, shape, device);
}

void count_flops(benchmark::State& state, double flops) {
  state.counters["GFLOP/s"] = benchmark::Counter(
      flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}

enum class Form { nn, nt, tn };

void gemm(benchmark::State& state, Form form) {
  const std::int64_t m = state.range(0);
  const std::int64_t k = state.range(1);
  const std::int64_t n = state.range(2);
  const Tensor a = form == Form::tn ? filled(state, {k, m}) : filled(state, {m, k});
  const Tensor b = form == Form::nt ? filled(state, {n, k}) : filled(state, {k, n});
  for (auto _ : state) {
    benchmark::DoNotOptimize(detail::mm(a, b, form == Form::tn, form == Form::nt));
  }
  count_flops(state, 2.0 * static_cast<double>(m * k * n));
}

void linear_forward(benchmark::State& state) {
  const Tensor x = filled(state, {state.range(0), state.range(1)});
  const Tensor weight = filled(state, {state.range(2), state.range(1)});
  const Tensor bias = filled(state, {state.range(2)});
  for (auto _ : state) benchmark::DoNotOptimize(linear(x, weight, bias));
  count_flops(state, 2.0 * static_cast<double>(state.range(0) * state.range(1) * state.range(2)));
}

// The passes of a convolution of 5 × 5: arguments batch, channels in and out, side of the image.
enum class Pass { forward, input_grad, weight_grad, bias_grad };

void conv(benchmark::State& state, Pass pass) {
  const std::int64_t batch = state.range(0);
  const std::int64_t in = state.range(1);
  const std::int64_t out = state.range(2);
  const std::int64_t side = state.range(3);
  const Tensor x = filled(state, {batch, in, side, side});
  const Tensor weight = filled(state, {out, in, 5, 5});
  const Tensor bias = filled(state, {out});
  const Tensor grad = filled(state, {batch, out, side - 4, side - 4});
  const detail::ConvGeometry g = detail::conv_geometry(x, weight, 1, 0, 1, 1);
  for (auto _ : state) {
    switch (pass) {
      case Pass::forward:
        benchmark::DoNotOptimize(conv2d(x, weight, bias));
        break;
      case Pass::input_grad:
        benchmark::DoNotOptimize(detail::conv_pass<detail::ConvPass::input_grad>(g, weight, grad));
        break;
      case Pass::weight_grad:
        benchmark::DoNotOptimize(detail::conv_pass<detail::ConvPass::weight_grad>(g, x, grad));
        break;
      case Pass::bias_grad:
        benchmark::DoNotOptimize(detail::channel_sum(grad, 1));
        break;
    }
  }
  if (pass != Pass::bias_grad) {
    count_flops(state, 2.0 * static_cast<double>(batch * out * in * 25 * (side - 4) * (side - 4)));
  }
}

// Windows of 2 × 2; with a gradient where the second argument is 1.
void max_pool(benchmark::State& state) {
  const Tensor x = filled(state, {state.range(0), 32, 24, 24});
  const bool backward = state.range(1) == 1;
  x.requires_grad_(backward);
  const Tensor grad = filled(state, {state.range(0), 32, 12, 12});
  for (auto _ : state) {
    const Tensor y = max_pool2d(x, 2);
    if (backward) benchmark::DoNotOptimize(autograd::grad({y}, {x}, {grad}));
  }
}

void cross_entropy_step(benchmark::State& state) {
  const Tensor x = filled(state, {state.range(0), 10}).requires_grad_();
  const Tensor labels = zeros({state.range(0)}, {.dtype = Dtype::i64, .device = x.device()});
  for (auto _ : state) {
    const Tensor loss = cross_entropy(x, labels);
    benchmark::DoNotOptimize(autograd::grad({loss}, {x}));
  }
}

void gemm_sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({30, 5, 2})->Args({128, 784, 512})->Args({256, 512, 512})->UseRealTime();
  benchmark->Threads(1)->Threads(2);
}

void conv_sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({64, 1, 32, 28})->Args({64, 32, 64, 12})->Args({128, 1, 32, 28});
  benchmark->Args({128, 32, 64, 12})->Unit(benchmark::kMillisecond)->UseRealTime();
  benchmark->Threads(1)->Threads(2);
}

BENCHMARK_CAPTURE(gemm, nn, Form::nn)->Apply(gemm_sizes);
BENCHMARK_CAPTURE(gemm, nt, Form::nt)->Apply(gemm_sizes);
BENCHMARK_CAPTURE(gemm, tn, Form::tn)->Apply(gemm_sizes);
BENCHMARK(linear_forward)->Apply(gemm_sizes);
BENCHMARK_CAPTURE(conv, forward, Pass::forward)->Apply(conv_sizes);
BENCHMARK_CAPTURE(conv, input_grad, Pass::input_grad)->Apply(conv_sizes);
BENCHMARK_CAPTURE(conv, weight_grad, Pass::weight_grad)->Apply(conv_sizes);
BENCHMARK_CAPTURE(conv, bias_grad, Pass::bias_grad)->Apply(conv_sizes);
BENCHMARK(max_pool)->Args({64, 0})->Args({64, 1})->Unit(benchmark::kMicrosecond)->UseRealTime();
BENCHMARK(cross_entropy_step)->Arg(30)->Arg(128)->UseRealTime();

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::set_host_device_count(2);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
