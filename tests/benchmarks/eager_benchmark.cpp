// SPDX-License-Identifier: Apache-2.0
//
// What one eager operation costs where the arithmetic costs nothing: on two floats, forward alone,
// recorded, and recorded and run backward.
#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/tensor/creation.hpp>

#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

namespace lockstep {
namespace {

Tensor two_floats() { return from_values(std::vector<float>{1, 2}, {2}, Device("cpu:0")); }

void empty_tensor(benchmark::State& state) {
  const Stream stream = current_stream(Device("cpu:0"));
  for (auto _ : state) benchmark::DoNotOptimize(detail::empty_on(stream, {2}, Dtype::f32));
}

void add_two(benchmark::State& state) {
  const NoGradGuard guard;
  const Tensor a = two_floats();
  const Tensor b = two_floats();
  for (auto _ : state) benchmark::DoNotOptimize(a + b);
}

void relu_two(benchmark::State& state) {
  const NoGradGuard guard;
  const Tensor a = two_floats();
  for (auto _ : state) benchmark::DoNotOptimize(relu(a));
}

void add_recorded(benchmark::State& state) {
  const Tensor a = two_floats();
  a.requires_grad_();
  const Tensor b = two_floats();
  for (auto _ : state) benchmark::DoNotOptimize(a + b);
}

// One recorded operation, whose gradient goes into a leaf that has none yet.
void add_backward(benchmark::State& state) {
  const Tensor a = two_floats();
  a.requires_grad_();
  const Tensor b = two_floats();
  const Tensor gradient = two_floats();
  for (auto _ : state) {
    (a + b).backward(gradient);
    a.set_grad({});
  }
}

BENCHMARK(empty_tensor);
BENCHMARK(add_two);
BENCHMARK(relu_two);
BENCHMARK(add_recorded);
BENCHMARK(add_backward);

}  // namespace
}  // namespace lockstep

BENCHMARK_MAIN();
