// SPDX-License-Identifier: Apache-2.0
//
// Training steps (zero_grad, forward, loss, backward, optimiser), served to `compare`. Arguments:
//
//   MODE    steps: of one thread: DataParallel/k over k devices, one/full and one/half on one
//   device
//           ddp: two ranks as threads, each with half of the batch on its own device
//           ddp_bound: the same, each bound to a core of its own
//   MEMORY  kept: devices keep what is freed; fresh: they give it back after every step
//
// Data stand ready as they do for the peers: in memory of the host for DataParallel, which scatters
// them, and on the device for the others. A step has ended when its devices have.
#include "compare_models.hpp"
#include "served_ranks.hpp"
#include "served_steps.hpp"

#include <lockstep/lockstep.hpp>

#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace compare {
namespace {

bool fresh = false;

void finish(const std::vector<ls::Device>& devices) {
  for (const ls::Device device : devices) ls::synchronize(device);
  if (!fresh) return;
  for (const ls::Device device : devices) ls::empty_cache(device);
  ls::empty_cache(ls::Device());
}

template <class Model>
std::vector<ls::Tensor> tensors_of(const Model& model) {
  const auto parameters = ls::parameters(model);
  return {parameters.begin(), parameters.end()};
}

template <class Net, class Model>
struct Training {
  Model model;
  std::vector<ls::Device> devices;
  ls::Tensor x, y;
  ls::optim::SGD sgd;

  Training(Model made, const std::vector<ls::Tensor>& parameters, std::vector<ls::Device> on,
           ls::Tensor input, ls::Tensor target)
      : model(std::move(made)),
        devices(std::move(on)),
        x(std::move(input)),
        y(std::move(target)),
        sgd(parameters, {.lr = 1e-3, .momentum = Net::kMomentum}) {}

  void step() {
    sgd.zero_grad();
    Net::loss(model(x), y).backward();
    sgd.step();
    finish(devices);
  }
};

template <class Net>
struct Alone {
  Net net;
  ls::Tensor operator()(const ls::Tensor& x) { return net.forward(x); }
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
  Model model{Net{}, devices};
  const std::vector<ls::Tensor> parameters = tensors_of(model);
  const ls::Device output = model.output_device();
  return step_of(std::make_shared<Training<Net, Model>>(std::move(model), parameters, devices,
                                                        Net::input(Net::kBatch),
                                                        Net::target(Net::kBatch).to(output)));
}

template <class Net>
Step on_one_device(std::int64_t rows) {
  const ls::Device device("cpu:0");
  Net net;
  ls::to(net, device);
  const std::vector<ls::Tensor> parameters = tensors_of(net);
  return step_of(std::make_shared<Training<Net, Alone<Net>>>(
      Alone<Net>{std::move(net)}, parameters, std::vector{device}, Net::input(rows).to(device),
      Net::target(rows).to(device)));
}

template <class Net>
Step distributed(const ls::distributed::ProcessGroup& group) {
  const ls::Device device = group.device();
  const std::int64_t rows = Net::kBatch / group.size();
  using Model = ls::DistributedDataParallel<Net>;
  Model model{Net{}, group};
  const std::vector<ls::Tensor> parameters = tensors_of(model);
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
  steps.add(name + "/one/full", [] { return on_one_device<Net>(Net::kBatch); });
  steps.add(name + "/one/half", [] { return on_one_device<Net>(Net::kBatch / 2); });
}

void serve_training_ranks(bool bound) {
  serve_ranks(bound, [](Steps& steps, const ls::distributed::ProcessGroup& group) {
    steps.add("tiny/DDP", [&group] { return distributed<Tiny>(group); });
    steps.add("mlp/DDP", [&group] { return distributed<Mlp>(group); });
    steps.add("cnn/DDP", [&group] { return distributed<Cnn>(group); });
  });
}

}  // namespace
}  // namespace compare

int main(int argc, char** argv) {
  using namespace compare;
  const std::string_view mode = argc > 1 ? argv[1] : "";
  fresh = argc > 2 && std::string_view(argv[2]) == "fresh";
  const bool bound = mode == "ddp_bound";
  const bool ranks = mode == "ddp" || bound;
  if (mode != "steps" && !ranks) {
    std::cerr << "usage: compare_training steps|ddp|ddp_bound [kept|fresh]\n";
    return 2;
  }
  ls::set_host_device_count(ranks ? 2 : 16);
  if (ranks) {
    serve_training_ranks(bound);
    return 0;
  }
  Steps steps;
  add_steps<Tiny>(steps, "tiny");
  add_steps<Mlp>(steps, "mlp");
  add_steps<Cnn>(steps, "cnn");
  serve(steps);
}
