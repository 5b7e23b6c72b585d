// SPDX-License-Identifier: Apache-2.0
//
// Layers by themselves, forward and backward on one device, as layer/LAYER, and steps of
// optimisers, served to `compare`. Shapes are those of the ResNet and the transformer of
// compare_models.cpp; peers/torch_layers.py has the same ones.
//
// `compare_layers save FOLDER` writes FOLDER/layer_LAYER.safetensors for peers to be checked with:
// what the layer is given and has, its output and gradients.
#include "../../examples/models/text_models.hpp"
#include "compare_models.hpp"
#include "served_steps.hpp"

#include <lockstep/lockstep.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace compare {
namespace {

const ls::Device kDevice("cpu:0");

struct Layer {
  std::vector<ls::Tensor> leaves;  // of floating-point numbers; some require grad
  std::function<ls::Tensor()> forward;
};

ls::Tensor leaf(const ls::Shape& shape) {
  return ls::randn(shape, {.device = kDevice}).requires_grad_();
}

const auto kPlainCall = [](auto& module, const ls::Tensor& x) { return module(x); };

// `x` comes last of the leaves.
template <class Module, class Call = decltype(kPlainCall)>
Layer layer(Module module, const ls::Tensor& x, Call call = kPlainCall) {
  ls::to(module, kDevice);
  const std::vector<ls::Parameter> parameters = ls::parameters(module);
  std::vector<ls::Tensor> leaves(parameters.begin(), parameters.end());
  if (is_floating_point(x.dtype())) leaves.push_back(x);
  return {leaves, [module, x, call]() mutable { return call(module, x); }};
}

template <class Call>
Layer function(const std::vector<ls::Tensor>& leaves, Call call) {
  return {leaves, [leaves, call] { return call(leaves); }};
}

Layer convolution(std::int64_t in, std::int64_t out, std::int64_t size) {
  const ls::Tensor x = ls::randn({128, in, size, size}, {.device = kDevice});
  if (in > 1) x.requires_grad_();  // not images
  return layer(ls::nn::Conv2d{in, out, 3, {.padding = 1, .bias = false}}, x);
}

Layer attention(std::int64_t batch, std::int64_t length) {
  const ls::Shape shape{batch, 4, length, 32};
  return function({leaf(shape), leaf(shape), leaf(shape)}, [](const auto& x) {
    return ls::scaled_dot_product_attention(x[0], x[1], x[2], {.is_causal = true});
  });
}

template <class Module>
Layer recurrent() {
  return layer(Module{128, 128}, leaf({64, 64, 128}),
               [](auto& module, const ls::Tensor& x) { return std::get<0>(module(x)); });
}

std::map<std::string, std::function<Layer()>> layers() {
  return {
      {"linear",
       [] {
         return layer(ls::nn::Linear{128, 512}, leaf({4096, 128}));
       }},
      {"conv2d_28", [] { return convolution(1, 16, 28); }},
      {"conv2d_14", [] { return convolution(16, 16, 14); }},
      {"conv2d_7", [] { return convolution(32, 32, 7); }},
      {"conv2d_4", [] { return convolution(64, 64, 4); }},
      {"batch_norm2d",
       [] {
         return layer(ls::nn::BatchNorm2d{16}, leaf({128, 16, 28, 28}));
       }},
      {"layer_norm",
       [] {
         return layer(ls::nn::LayerNorm{128}, leaf({64, 64, 128}));
       }},
      {"gelu",
       [] {
         return function({leaf({64, 64, 512})}, [](const auto& x) { return ls::gelu(x[0]); });
       }},
      {"softmax",
       [] {
         return function({leaf({256, 64, 64})},
                         [](const auto& x) { return ls::softmax(x[0], -1); });
       }},
      {"log_softmax",
       [] {
         return function({leaf({4096, 256})},
                         [](const auto& x) { return ls::log_softmax(x[0], -1); });
       }},
      {"cross_entropy",
       [] {
         return function({leaf({4096, 256})},
                         [target = numbers({4096}, 256).to(kDevice)](const auto& x) {
                           return ls::cross_entropy(x[0], target);
                         });
       }},
      {"cross_entropy_images",
       [] {
         return function({leaf({8, 10, 64, 64})},
                         [target = numbers({8, 64, 64}, 10).to(kDevice)](const auto& x) {
                           return ls::cross_entropy(x[0], target);
                         });
       }},
      {"binary_cross_entropy",
       [] {
         return function(
             {leaf({512, 512}), ls::rand({512, 512}, {.device = kDevice})},
             [](const auto& x) { return ls::binary_cross_entropy_with_logits(x[0], x[1]); });
       }},
      {"one_row",
       [] {
         return layer(ls::nn::Linear{512, 512}, leaf({1, 512}));
       }},
      {"heads",
       [] {
         return function({leaf({64, 64, 4, 32})}, [](const auto& x) {
           return x[0].permute({0, 2, 1, 3}).contiguous();
         });
       }},
      {"cat",
       [] {
         return function({leaf({512, 512}), leaf({512, 512})},
                         [](const auto& x) { return ls::cat(x, 1); });
       }},
      {"index_select",
       [] {
         return function({leaf({512, 512})},
                         [columns = numbers({256}, 512).to(kDevice)](const auto& x) {
                           return ls::index_select(x[0], 1, columns);
                         });
       }},
      {"attention", [] { return attention(64, 64); }},
      {"attention_1024", [] { return attention(4, 1024); }},
      {"lstm", recurrent<ls::nn::LSTM>},
      {"gru", recurrent<ls::nn::GRU>},
      {"embedding",
       [] {
         return layer(ls::nn::Embedding{256, 128}, numbers({64, 64}, 256).to(kDevice));
       }},
  };
}

Step forward_and_backward(Layer layer) {
  const ls::Tensor gradient = ls::randn(layer.forward().sizes(), {.device = kDevice});
  return {[layer = std::move(layer), gradient] {
    layer.forward().backward(gradient);
    for (const ls::Tensor& leaf : layer.leaves) leaf.set_grad({});
    ls::synchronize(kDevice);
  }};
}

// On the parameters of the transformer, whose gradients stay.
template <class Optimizer>
Step optimizer_step() {
  auto model = example::make_transformer_model({});
  ls::to(model, kDevice);
  const std::vector<ls::Parameter> parameters = ls::parameters(model);
  for (const ls::Parameter& parameter : parameters) {
    parameter.set_grad(ls::randn(parameter.sizes(), {.device = kDevice}));
  }
  const auto optimizer = std::make_shared<Optimizer>(parameters);
  return {[optimizer] {
    optimizer->step();
    ls::synchronize(kDevice);
  }};
}

void save_layer(const Layer& layer, const std::filesystem::path& path) {
  const ls::Tensor output = layer.forward();
  const ls::Tensor gradient = ls::randn(output.sizes(), {.device = kDevice});
  output.backward(gradient);
  ls::StateDict tensors{{"output", output.detach()}, {"gradient", gradient}};
  for (std::size_t i = 0; i < layer.leaves.size(); ++i) {
    tensors.push_back({"leaf/" + std::to_string(i), layer.leaves[i].detach()});
    if (!layer.leaves[i].requires_grad()) continue;
    tensors.push_back({"grad/" + std::to_string(i), layer.leaves[i].grad()});
  }
  ls::io::save_file(tensors, path);
}

}  // namespace
}  // namespace compare

int main(int argc, char** argv) {
  using namespace compare;
  ls::set_host_device_count(1);
  if (argc == 3 && std::string_view(argv[1]) == "save") {
    for (const auto& [name, make] : layers()) {
      save_layer(make(), std::filesystem::path(argv[2]) / ("layer_" + name + ".safetensors"));
    }
    return 0;
  }
  if (argc != 1) {
    std::cerr << "usage: compare_layers [save FOLDER]\n";
    return 2;
  }
  Steps steps;
  for (const auto& [name, make] : layers()) {
    steps.add("layer/" + name, [make = make] { return forward_and_backward(make()); });
  }
  steps.add("layer/adam", optimizer_step<ls::optim::Adam>);
  steps.add("layer/adamw", optimizer_step<ls::optim::AdamW>);
  serve(steps);
}
