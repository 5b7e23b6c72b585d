// SPDX-License-Identifier: Apache-2.0
//
// Training steps (zero_grad, forward, loss, backward, optimiser) of models, served to `compare`.
// Arguments of a program:
//
//   MODE    steps: of one thread: MODEL/DataParallel/k over k devices, MODEL/one/full and
//           MODEL/one/half on one device
//           ddp: MODEL/DDP of two ranks as threads, each with half of the batch on its own device
//           ddp_bound: the same, each bound to a core of its own
//   MEMORY  kept: devices keep what is freed; fresh: they give it back after every step
//
// or `save FOLDER`, which writes FOLDER/MODEL.safetensors for peers to be checked with: the state
// dict as it is at first, input and target of the whole batch, and the losses of two steps.
//
// Data stand ready as they do for the peers: in memory of the host for DataParallel, which scatters
// them, and on the device for the others. A step has ended when its devices have.
#pragma once

#include "served_ranks.hpp"
#include "served_steps.hpp"

#include <lockstep/lockstep.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace compare {

namespace ls = lockstep;

// A model has kBatch, input(rows), target(rows) and forward(input), whose result loss(output,
// target) takes; without `loss` forward(input, target) gives it. Its optimiser is `optimizer`, or
// SGD with kMomentum; DataParallel has its `options`, if there are any.
template <class Net>
concept GivesItsLoss = !requires(const ls::Tensor& output, const ls::Tensor& target) {
  Net::loss(output, target);
};

// The name by which a model is served.
template <class Net>
struct Named {
  const char* name;
};

inline bool fresh = false;

inline void finish(const std::vector<ls::Device>& devices) {
  for (const ls::Device device : devices) ls::synchronize(device);
  if (!fresh) return;
  for (const ls::Device device : devices) ls::empty_cache(device);
  ls::empty_cache(ls::Device());
}

template <class Net>
auto optimizer_of(const ls::optim::ParameterList& parameters) {
  if constexpr (requires { Net::optimizer(parameters); }) {
    return Net::optimizer(parameters);
  } else {
    return ls::optim::SGD{parameters, {.lr = 1e-3, .momentum = Net::kMomentum}};
  }
}

template <class Net>
ls::DataParallelOptions options_of() {
  if constexpr (requires { Net::options(); }) {
    return Net::options();
  } else {
    return {};
  }
}

template <class Net, class Model>
struct Training {
  using Optimizer = decltype(optimizer_of<Net>({}));

  Model model;
  std::vector<ls::Device> devices;
  ls::Tensor x, y;
  Optimizer optimizer;

  Training(Model made, const ls::optim::ParameterList& parameters, std::vector<ls::Device> on,
           ls::Tensor input, ls::Tensor target)
      : model(std::move(made)),
        devices(std::move(on)),
        x(std::move(input)),
        y(std::move(target)),
        optimizer(optimizer_of<Net>(parameters)) {}

  ls::Tensor loss() {
    if constexpr (GivesItsLoss<Net>) {
      return model(x, y);
    } else {
      return Net::loss(model(x), y);
    }
  }

  ls::Tensor step() {
    optimizer.zero_grad();
    const ls::Tensor value = loss();
    value.backward();
    optimizer.step();
    finish(devices);
    return value;
  }
};

template <class Net>
struct Alone {
  Net net;
  template <class... Tensors>
  ls::Tensor operator()(const Tensors&... tensors) {
    return net.forward(tensors...);
  }
};

template <class T>
Step step_of(std::shared_ptr<T> training) {
  return {[training] { training->step(); }};
}

template <class Net>
Step data_parallel(int count) {
  std::vector<ls::Device> devices = ls::host_devices();
  devices.resize(static_cast<std::size_t>(count));
  using Model = ls::DataParallel<Net>;
  Model model{Net{}, devices, options_of<Net>()};
  const std::vector<ls::Parameter> parameters = ls::parameters(model);
  const ls::Device target_device = GivesItsLoss<Net> ? ls::Device() : model.output_device();
  return step_of(std::make_shared<Training<Net, Model>>(
      std::move(model), parameters, devices, Net::input(Net::kBatch),
      Net::target(Net::kBatch).to(target_device)));
}

template <class Net>
auto train_on_one_device(std::int64_t rows) {
  const ls::Device device("cpu:0");
  Net net;
  ls::to(net, device);
  const std::vector<ls::Parameter> parameters = ls::parameters(net);
  return std::make_shared<Training<Net, Alone<Net>>>(
      Alone<Net>{std::move(net)}, parameters, std::vector{device}, Net::input(rows).to(device),
      Net::target(rows).to(device));
}

template <class Net>
Step distributed(const ls::distributed::ProcessGroup& group) {
  const ls::Device device = group.device();
  const std::int64_t rows = Net::kBatch / group.size();
  using Model = ls::DistributedDataParallel<Net>;
  Model model{Net{}, group};
  const std::vector<ls::Parameter> parameters = ls::parameters(model);
  return step_of(std::make_shared<Training<Net, Model>>(
      std::move(model), parameters, std::vector{device}, Net::input(rows).to(device),
      Net::target(rows).to(device)));
}

template <class Net>
void add_steps(Steps& steps, const std::string& name) {
  for (const int count : {1, 2, 4, 8, 16}) {
    steps.add(name + "/DataParallel/" + std::to_string(count),
              [count] { return data_parallel<Net>(count); });
  }
  steps.add(name + "/one/full", [] { return step_of(train_on_one_device<Net>(Net::kBatch)); });
  steps.add(name + "/one/half", [] { return step_of(train_on_one_device<Net>(Net::kBatch / 2)); });
}

template <class Net>
void save_training(const std::filesystem::path& path) {
  const auto training = train_on_one_device<Net>(Net::kBatch);
  ls::StateDict tensors;
  for (const auto& [name, tensor] : ls::state_dict(training->model.net)) {
    tensors.push_back({"state/" + name, tensor.clone()});
  }
  tensors.push_back({"input", training->x});
  tensors.push_back({"target", training->y});
  for (const char* name : {"loss/0", "loss/1"}) {
    tensors.push_back({name, training->step().detach()});
  }
  ls::io::save_file(tensors, path);
}

template <class... Nets>
int serve_training(int argc, char** argv, Named<Nets>... nets) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  const bool bound = mode == "ddp_bound";
  const bool ranks = mode == "ddp" || bound;
  ls::set_host_device_count(ranks ? 2 : 16);
  if (mode == "save" && argc == 3) {
    const std::filesystem::path folder = argv[2];
    (save_training<Nets>(folder / (std::string(nets.name) + ".safetensors")), ...);
    return 0;
  }
  if (mode != "steps" && !ranks) {
    std::cerr << "usage: " << argv[0] << " steps|ddp|ddp_bound [kept|fresh] or save FOLDER\n";
    return 2;
  }
  fresh = argc > 2 && std::string_view(argv[2]) == "fresh";
  if (ranks) {
    serve_ranks(bound, [&](Steps& steps, const ls::distributed::ProcessGroup& group) {
      const auto add = [&]<class Net>(Named<Net> net) {
        steps.add(std::string(net.name) + "/DDP", [&group] { return distributed<Net>(group); });
      };
      (add(nets), ...);
    });
    return 0;
  }
  Steps steps;
  (add_steps<Nets>(steps, nets.name), ...);
  serve(steps);
  return 0;
}

}  // namespace compare
