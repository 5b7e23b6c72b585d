// SPDX-License-Identifier: Apache-2.0

// A LibTorch training program on several devices. The network, data loader, optimiser and loop stay
// LibTorch's. Only the three lines marked (1) to (3) are new.
//
//   train_libtorch --devices 2 --epochs 2

#include <lockstep/data/fashion_mnist.hpp>
#include <lockstep/torch.hpp>  // (1)

#include "support/arguments.hpp"
#include "support/devices.hpp"

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

namespace ls = lockstep;

namespace {

struct Net : torch::nn::Module {
  torch::nn::Conv2d conv1{torch::nn::Conv2dOptions(1, 10, 5)};
  torch::nn::Conv2d conv2{torch::nn::Conv2dOptions(10, 20, 5)};
  torch::nn::Dropout2d drop;
  torch::nn::Linear fc1{320, 50}, fc2{50, 10};

  Net() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("drop", drop);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1(x), 2));
    x = torch::relu(torch::max_pool2d(drop(conv2(x)), 2));
    x = torch::relu(fc1(x.view({-1, 320})));
    x = torch::dropout(x, 0.5, is_training());
    return torch::log_softmax(fc2(x), 1);
  }
};

// Fashion-MNIST for LibTorch's loaders. lockstep reads it, and the tensors share that memory.
class FashionMnist : public torch::data::datasets::Dataset<FashionMnist> {
 public:
  FashionMnist(const std::string& directory, bool train) : data_(directory, train) {
    const std::int64_t count = data_.size();
    pixels_ = torch::from_blob(const_cast<std::uint8_t*>(data_.pixels().const_data_ptr<uint8_t>()),
                               {count, 1, 28, 28}, torch::kUInt8);
    labels_ = torch::from_blob(const_cast<std::int64_t*>(data_.labels().const_data_ptr<int64_t>()),
                               {count}, torch::kInt64);
  }

  torch::data::Example<> get(std::size_t index) override {
    const auto row = static_cast<std::int64_t>(index);
    return {pixels_[row].to(torch::kFloat32).div(255), labels_[row]};
  }
  torch::optional<std::size_t> size() const override {
    return static_cast<std::size_t>(data_.size());
  }

 private:
  ls::data::FashionMnist data_;  // owns the memory
  torch::Tensor pixels_, labels_;
};

template <class Sampler>
auto make_loader(const std::string& directory, bool train, std::size_t batch) {
  auto data = FashionMnist(directory, train)
                  .map(torch::data::transforms::Normalize<>(0.286, 0.353))
                  .map(torch::data::transforms::Stack<>());
  return torch::data::make_data_loader<Sampler>(std::move(data), batch);
}

template <class Model, class Loader>
double accuracy(const Model& model, Loader& loader) {
  const torch::NoGradGuard guard;
  std::int64_t correct = 0, all = 0;
  for (auto& batch : loader) {
    const torch::Tensor guess = model(batch.data).argmax(1);
    correct += guess.eq(batch.target).sum().template item<std::int64_t>();
    all += batch.target.size(0);
  }
  return static_cast<double>(correct) / static_cast<double>(all);
}

void train(int argc, char** argv) {
  std::string device_text, directory = ls::data::kFashionMnistDirectory;
  std::int64_t epochs = 2, steps = 0;
  std::size_t batch_size = 64;
  example::Arguments arguments("Trains a network of LibTorch's on several devices.");
  arguments.add("--devices", device_text, "a number, or a list such as cpu:0,cpu:1");
  arguments.add("--data", directory, "where Fashion-MNIST's files are");
  arguments.add("--epochs", epochs, "how often to go through the images");
  arguments.add("--steps", steps, "steps an epoch at most; 0: all");
  arguments.add("--batch-size", batch_size, "images a step");
  arguments.parse(argc, argv);
  const std::vector<ls::Device> devices = example::choose_devices(device_text);

  torch::manual_seed(1);
  const auto net = std::make_shared<Net>();
  ls::libtorch::DataParallel model{net, devices, [] { return std::make_shared<Net>(); }};  // (2)
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.5));

  auto images =
      make_loader<torch::data::samplers::RandomSampler>(directory, /*train=*/true, batch_size);
  auto tests = make_loader<torch::data::samplers::SequentialSampler>(directory, false, 1000);
  for (std::int64_t epoch = 1; epoch <= epochs; ++epoch) {
    net->train();
    std::int64_t step = 0;
    double sum = 0;
    for (auto& batch : *images) {
      optimizer.zero_grad();
      const torch::Tensor output = model(batch.data);  // (3) was net->forward(batch.data)
      const torch::Tensor loss = torch::nll_loss(output, batch.target);
      loss.backward();
      optimizer.step();
      sum += loss.item<double>();
      if (++step == steps) break;
    }
    net->eval();
    std::printf("epoch %d: loss %.4f, test accuracy %.4f\n", static_cast<int>(epoch),
                sum / static_cast<double>(step), accuracy(model, *tests));
  }
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(argv[0], [&] { train(argc, argv); });
}
