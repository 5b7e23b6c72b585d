// SPDX-License-Identifier: Apache-2.0

// What tells most about a GPU in the least time: each kind of work once, from an addition to
// training steps over four logical devices, beside the same on the host.
//
//   LOCKSTEP_CUDA_DEVICES=4 first_steps
//
// A line for each step, as soon as it has ended: ok or FAILED, its name, the milliseconds on the
// GPU, and the largest difference from the host or what went wrong. A step that throws does not
// keep the next from its turn. The status is 1 where one failed.
#include <lockstep/lockstep.hpp>

#include "models/image_models.hpp"
#include "models/text_models.hpp"
#include "samples.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iomanip>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace ls = lockstep;

using Devices = std::vector<ls::Device>;

// All values that a step gives, on the host and in order.
using Values = std::vector<double>;

void add_values(Values& values, const ls::Tensor& tensor) {
  const ls::Tensor host = tensor.detach().to(ls::Device("cpu:0")).to(ls::Dtype::f64);
  for (const double value : host.to_vector<double>()) values.push_back(value);
}

// Throws unless the GPU's values are the host's within `tolerance` of the largest; returns by how
// much they differ.
double difference(const Values& gpu, const Values& host, double tolerance) {
  ls::check<ls::ValueError>(gpu.size() == host.size(), "expected ", host.size(),
                            " values as on the host, got ", gpu.size());
  double largest = 0;
  double worst = 0;
  for (std::size_t i = 0; i < host.size(); ++i) {
    ls::check<ls::ValueError>(std::isfinite(gpu[i]) || gpu[i] == host[i], "value ", i, " is ",
                              gpu[i], " and ", host[i], " on the host");
    largest = std::max(largest, std::abs(host[i]));
    worst = std::max(worst, std::abs(gpu[i] - host[i]));
  }
  const double relative = largest > 0 ? worst / largest : worst;
  ls::check<ls::ValueError>(relative <= tolerance, "differs from the host by ", relative,
                            " of the largest value");
  return relative;
}

class Steps {
 public:
  Steps(Devices gpus, Devices hosts) : gpus_(std::move(gpus)), hosts_(std::move(hosts)) {}

  int failed() const { return failed_; }

  // Runs `work` on the GPU's devices, twice, and on as many of the host.
  void run(const std::string& name, double tolerance,
           const std::function<Values(const Devices&)>& work) {
    try {
      const double first = gpu_benchmark::time_of([&] { return work(gpus_); });
      Values gpu;
      const double second = gpu_benchmark::time_of([&] { return gpu = work(gpus_); });
      const double off = difference(gpu, work(hosts_), tolerance);
      std::cout << "ok\t" << name << '\t' << std::setprecision(3) << first / 1000 << " ms, then "
                << second / 1000 << "\toff by " << off << std::endl;
    } catch (const std::exception& error) {
      ++failed_;
      std::cout << "FAILED\t" << name << "\t\t" << error.what() << std::endl;
    }
  }

 private:
  const Devices gpus_;
  const Devices hosts_;
  int failed_ = 0;
};

// Forward and backward of a function of tensors that it is given on the first device.
std::function<Values(const Devices&)> both_ways(
    std::vector<ls::Tensor> inputs,
    std::function<ls::Tensor(const std::vector<ls::Tensor>&)> function) {
  return [inputs = std::move(inputs), function = std::move(function)](const Devices& devices) {
    std::vector<ls::Tensor> on_device;
    for (const ls::Tensor& input : inputs) {
      ls::Tensor copy = input.detach().to(devices[0]);
      copy.requires_grad_();
      on_device.push_back(copy);
    }
    const ls::Tensor result = function(on_device);
    ls::sum(result * result).backward();
    Values values;
    add_values(values, result);
    for (const ls::Tensor& input : on_device) add_values(values, input.grad());
    return values;
  };
}

// A copy of a module on a device.
template <typename Module>
Module on(const ls::Device& device, const Module& module) {
  Module copy = ls::clone(module);
  ls::to(copy, device);
  return copy;
}

// The losses of three steps of SGD over all devices.
template <typename Module, typename... Inputs>
Values train(const Module& module, const Devices& devices, double rate, const Inputs&... inputs) {
  ls::DataParallel model{ls::clone(module), devices};
  ls::optim::SGD sgd{model.parameters(), {.lr = rate, .momentum = 0.9}};
  Values losses;
  for (int step = 0; step < 3; ++step) {
    const ls::Tensor loss = ls::mean(model(inputs.to(devices[0])...));
    sgd.zero_grad();
    loss.backward();
    sgd.step();
    add_values(losses, loss);
  }
  return losses;
}

template <typename Module>
struct ImageLoss {
  Module module;
  ls::Tensor forward(const ls::Tensor& images, const ls::Tensor& labels) {
    return ls::cross_entropy(module.forward(images), labels);
  }
};

void run_lstm(Steps& steps, const std::string& name, const ls::nn::LSTM& lstm,
              const ls::Tensor& sequence) {
  steps.run(name, 1e-4, [&](const Devices& devices) {
    const ls::nn::LSTM there = on(devices[0], lstm);
    return both_ways({sequence}, [&](const auto& x) { return std::get<0>(there(x[0])); })(devices);
  });
}

void operations(Steps& steps) {
  const ls::Tensor a = ls::randn({64, 96});
  const ls::Tensor b = ls::randn({96, 80});
  steps.run("copies there and back", 0, [&](const Devices& devices) {
    Values values;
    add_values(values, a.to(devices[0]));
    return values;
  });
  steps.run("relu", 0, both_ways({a}, [](const auto& x) { return ls::relu(x[0]); }));
  steps.run("addition", 1e-6, both_ways({a, a}, [](const auto& x) { return x[0] + x[1]; }));
  steps.run("sum and mean", 1e-5,
            both_ways({a}, [](const auto& x) { return ls::sum(x[0], {1}) + ls::mean(x[0]); }));
  steps.run("product", 1e-5,
            both_ways({a, b}, [](const auto& x) { return ls::matmul(x[0], x[1]); }));
  steps.run("convolution", 1e-5,
            both_ways({ls::randn({8, 3, 16, 16}), ls::randn({5, 3, 3, 3})},
                      [](const auto& x) { return ls::conv2d(x[0], x[1], {}, 1, 1); }));
  steps.run("pooling", 1e-6, both_ways({ls::randn({4, 3, 16, 16})}, [](const auto& x) {
              return ls::max_pool2d(x[0], 2);
            }));
  steps.run("softmax", 1e-5, both_ways({a}, [](const auto& x) { return ls::softmax(x[0], 1); }));
  run_lstm(steps, "LSTM", ls::nn::LSTM{16, 24, {.num_layers = 2}}, ls::randn({12, 4, 16}));
}

// Where the libraries may have limits of their own: more rows, matrices and images than the 65535
// blocks of a grid along y or z, and memory that begins at a multiple of 4 bytes alone.
void limits(Steps& steps) {
  using Inputs = std::vector<ls::Tensor>;
  using Function = std::function<ls::Tensor(const Inputs&)>;
  constexpr std::int64_t kMany = 70'000;
  const Function softmax = [](const Inputs& x) { return ls::softmax(x[0], 1); };
  const Function product = [](const Inputs& x) { return ls::matmul(x[0], x[1]); };
  const Function convolution = [](const Inputs& x) { return ls::conv2d(x[0], x[1], {}, 1, 1); };
  const auto of_all_but_the_first = [](const Function& function) -> Function {
    return [function](Inputs x) {
      x[0] = x[0].narrow(0, 1, x[0].size(0) - 1);
      return function(x);
    };
  };
  steps.run("softmax of many rows", 1e-5, both_ways({ls::randn({kMany, 5})}, softmax));
  steps.run("many products", 1e-5,
            both_ways({ls::randn({kMany, 2, 3}), ls::randn({kMany, 3, 2})}, product));
  steps.run("convolution of many images", 1e-4,
            both_ways({ls::randn({kMany, 1, 4, 4}), ls::randn({2, 1, 3, 3})}, convolution));
  run_lstm(steps, "LSTM of many rows", ls::nn::LSTM{3, 4}, ls::randn({2, kMany, 3}));
  steps.run("softmax at an odd address", 1e-5,
            both_ways({ls::randn({9, 5})}, of_all_but_the_first(softmax)));
  steps.run("product at an odd address", 1e-5,
            both_ways({ls::randn({9, 5, 7}), ls::randn({7, 3})}, of_all_but_the_first(product)));
  steps.run("convolution at an odd address", 1e-5,
            both_ways({ls::randn({9, 3, 5, 5}), ls::randn({4, 3, 3, 3})},
                      of_all_but_the_first(convolution)));
}

void collectives(Steps& steps) {
  const ls::Tensor batch = ls::randn({64, 96});
  steps.run("scatter and gather", 0, [&](const Devices& devices) {
    Values values;
    add_values(values, ls::gather(ls::scatter(batch, devices), devices[0]));
    return values;
  });
  steps.run("broadcast and reduce_add", 1e-6, [&](const Devices& devices) {
    Values values;
    add_values(values, ls::comm::reduce_add(ls::comm::broadcast(batch, devices), devices[0]));
    return values;
  });
}

void training(Steps& steps) {
  const ls::Tensor images = ls::randn({32, 1, 28, 28});
  std::vector<std::int64_t> classes(32);
  for (std::size_t i = 0; i < classes.size(); ++i) classes[i] = static_cast<std::int64_t>(i % 10);
  const ls::Tensor labels = ls::from_values(classes, {32});
  const auto image_model = [&](const std::string& name, auto model) {
    const ImageLoss<decltype(model)> module{std::move(model)};
    steps.run(name, 1e-4,
              [&](const Devices& devices) { return train(module, devices, 0.01, images, labels); });
  };
  image_model("MLP over all devices", example::make_mlp(ls::Dtype::f32));
  image_model("LeNet over all devices", example::make_cnn(ls::Dtype::f32));
  image_model("ResNet over all devices", example::make_resnet(ls::Dtype::f32));

  std::vector<std::int64_t> letters(32 * 8);
  for (std::size_t i = 0; i < letters.size(); ++i) {
    letters[i] = static_cast<std::int64_t>(i * 7 % static_cast<std::size_t>(example::kCharacters));
  }
  const ls::Tensor text = ls::from_values(letters, {32, 8});
  const auto text_model = [&](const std::string& name, const auto& module) {
    steps.run(name, 1e-4, [&](const Devices& devices) {
      return train(module, {devices[0]}, 0.01, text, text);
    });
  };
  text_model("LSTM model", example::make_lstm_model({}));
  text_model("transformer", example::make_transformer_model({}));
}

}  // namespace

int main() {
  ls::set_host_device_count(4);
  const Devices gpus = ls::devices(ls::DeviceType::cuda);
  if (gpus.empty()) {
    std::cerr << "no CUDA device: " << ls::no_cuda_reason() << '\n';
    return 77;
  }
  const Devices all = ls::devices(ls::DeviceType::cpu);
  const Devices hosts(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(gpus.size()));
  ls::manual_seed(0);
  Steps steps(gpus, hosts);
  operations(steps);
  limits(steps);
  collectives(steps);
  training(steps);
  return steps.failed() == 0 ? 0 : 1;
}
