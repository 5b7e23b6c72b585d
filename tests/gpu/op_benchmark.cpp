// SPDX-License-Identifier: Apache-2.0

// Large operations on one GPU, each forward and backward; what torch_ops.py does with torch. A line
// for each: its name and, behind tabs, the medians of the microseconds that it takes, the host
// waiting after each, and of those after which the host has issued it.
//
//   op_benchmark --rounds 20
//   op_benchmark --only layer_norm
#include <lockstep/lockstep.hpp>

#include "samples.hpp"
#include "support/arguments.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace ls = lockstep;

using Inputs = std::vector<ls::Tensor>;

class Benchmark {
 public:
  Benchmark(std::int64_t rounds, std::string only) : rounds_(rounds), only_(std::move(only)) {}

  void time(const std::string& name, const std::vector<ls::Shape>& shapes,
            const std::function<ls::Tensor(const Inputs&)>& operation) const {
    if (!only_.empty() && name != only_) return;
    Inputs inputs;
    for (const ls::Shape& shape : shapes) {
      inputs.push_back(ls::randn(shape, {.device = kGpu}).requires_grad_());
    }
    const auto forward = [&] {
      const ls::NoGradGuard no_grad;
      return operation(inputs);
    };
    const ls::Tensor gradient = ls::randn(forward().sizes(), {.device = kGpu});
    report(name + "/forward", forward);
    report(name + "/both", [&] {
      operation(inputs).backward(gradient);
      for (const ls::Tensor& input : inputs) input.set_grad({});
      return 0;
    });
  }

 private:
  template <typename Work>
  void report(const std::string& name, const Work& work) const {
    std::vector<double> until_done;
    std::vector<double> until_issued;
    for (std::int64_t round = -3; round < rounds_; ++round) {
      double issued = 0;
      const double done = gpu_benchmark::time_of([&] {
        auto result = std::optional<decltype(work())>();
        issued = gpu_benchmark::time_of([&] {
          result = work();
          return 0;
        });
        ls::synchronize(kGpu);
        return result;
      });
      if (round < 0) continue;
      until_done.push_back(done);
      until_issued.push_back(issued);
    }
    std::cout << name << '\t' << gpu_benchmark::quartiles(until_done).median << '\t'
              << gpu_benchmark::quartiles(until_issued).median << std::endl;
  }

  const ls::Device kGpu = "cuda:0";
  const std::int64_t rounds_;
  const std::string only_;
};

void run(int argc, char** argv) {
  std::int64_t rounds = 20;
  std::int64_t rows = 8192;
  std::int64_t columns = 4096;
  std::string only;
  example::Arguments arguments("Times large operations on a GPU.");
  arguments.add("--only", only, "one operation");
  arguments.add("--rounds", rounds, "samples of each");
  arguments.add("--rows", rows, "of the matrices");
  arguments.add("--columns", columns, "of the matrices");
  arguments.parse(argc, argv);
  ls::check<ls::DeviceError>(ls::device_count(ls::DeviceType::cuda) > 0, ls::no_cuda_reason());
  ls::manual_seed(0);
  const Benchmark benchmark(rounds, only);
  const ls::Shape matrix{rows, columns};
  benchmark.time("add", {matrix, matrix}, [](const Inputs& x) { return x[0] + x[1]; });
  benchmark.time("add-row", {matrix, {columns}}, [](const Inputs& x) { return x[0] + x[1]; });
  benchmark.time("relu", {matrix}, [](const Inputs& x) { return ls::relu(x[0]); });
  benchmark.time("gelu", {matrix}, [](const Inputs& x) { return ls::gelu(x[0]); });
  benchmark.time("sum", {matrix}, [](const Inputs& x) { return ls::sum(x[0]); });
  benchmark.time("sum-rows", {matrix}, [](const Inputs& x) { return ls::sum(x[0], {1}); });
  benchmark.time("sum-columns", {matrix}, [](const Inputs& x) { return ls::sum(x[0], {0}); });
  benchmark.time("transpose", {matrix},
                 [](const Inputs& x) { return x[0].transpose(0, 1).contiguous(); });
  benchmark.time("softmax", {matrix}, [](const Inputs& x) { return ls::softmax(x[0], 1); });
  benchmark.time("layer_norm", {matrix, {columns}, {columns}},
                 [&](const Inputs& x) { return ls::layer_norm(x[0], {columns}, x[1], x[2]); });
  benchmark.time("matmul", {{rows / 4, columns / 2}, {columns / 2, columns / 2}},
                 [](const Inputs& x) { return ls::matmul(x[0], x[1]); });
  benchmark.time("linear", {{rows, columns / 4}, {columns / 4, columns / 4}, {columns / 4}},
                 [](const Inputs& x) { return ls::linear(x[0], x[1], x[2]); });
  const std::int64_t images = std::max<std::int64_t>(rows / 256, 1);
  const std::int64_t channels = columns / 64;
  benchmark.time("conv2d", {{images, channels, 56, 56}, {channels, channels, 3, 3}, {channels}},
                 [](const Inputs& x) { return ls::conv2d(x[0], x[1], x[2], 1, 1); });
  benchmark.time("max_pool2d", {{images, channels, 56, 56}},
                 [](const Inputs& x) { return ls::max_pool2d(x[0], 2); });
  const ls::Shape heads{std::max<std::int64_t>(rows / 2048, 1), 8, columns / 4, 64};
  benchmark.time("attention", {heads, heads, heads}, [](const Inputs& x) {
    return ls::scaled_dot_product_attention(x[0], x[1], x[2]);
  });
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(argv[0], [&] { run(argc, argv); });
}
