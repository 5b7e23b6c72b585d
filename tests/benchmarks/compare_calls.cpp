// SPDX-License-Identifier: Apache-2.0
//
// Small things, served to `compare`: dispatch, the collectives over two host devices, one eager
// operation.
//
//   dispatch/free, dispatch/busy            two empty replicas applied and joined
//   OP/BYTES/kept, OP/BYTES/fresh           OP of scatter, gather, broadcast, reduce_add
//   eager/add, eager/add_backward           on two floats
//
// BYTES: the whole tensor for scatter and gather, each copy for broadcast, each summand for
// reduce_add. A collective has ended when its results are there on both devices. fresh: the devices
// have given back all they kept before the call, so that the results lie in memory that comes from
// the system.
//
// `compare_calls ranks` serves all_reduce/BYTES between two ranks that are threads, each bound to a
// core. It is in place, so nothing of it is fresh.
//
// `compare_calls memory DEVICES` trains the MLP with DataParallel over that many devices, or
// without it for 0, and prints the bytes that tensors hold between two steps, the sum of each
// device's greatest, and the bytes of the parameters.
//
// `compare_calls count WHAT TIMES` runs WHAT (add, add_backward, dispatch, tiny_step, tiny_step_2)
// TIMES times and ends: for callgrind.
#include "compare_models.hpp"
#include "fresh_memory.hpp"
#include "served_ranks.hpp"
#include "served_steps.hpp"

#include <lockstep/lockstep.hpp>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <malloc.h>

namespace compare {
namespace {

using fresh_memory::filled;

template <class T>
void keep(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

const std::vector<ls::Device>& two_devices() {
  static const std::vector<ls::Device> devices{"cpu:0", "cpu:1"};
  return devices;
}

template <class Collective>
Step collective(bool fresh, Collective call) {
  Step step{[call] {
    const auto results = call();
    keep(results);
    for (const ls::Device device : two_devices()) ls::synchronize(device);
  }};
  if (fresh) step.before = [] { fresh_memory::give_back(two_devices()); };
  return step;
}

void add_collectives(Steps& steps, std::int64_t bytes, bool fresh) {
  const std::string end = std::to_string(bytes) + (fresh ? "/fresh" : "/kept");
  steps.add("scatter/" + end, [=] {
    return collective(fresh, [whole = filled(bytes, ls::Device())] {
      return ls::comm::scatter(whole, two_devices());
    });
  });
  steps.add("gather/" + end, [=] {
    const std::vector parts{filled(bytes / 2, "cpu:0"), filled(bytes / 2, "cpu:1")};
    return collective(fresh, [parts] { return ls::comm::gather(parts, 0, ls::Device()); });
  });
  steps.add("broadcast/" + end, [=] {
    return collective(fresh, [source = filled(bytes, "cpu:0")] {
      return ls::comm::broadcast(source, two_devices());
    });
  });
  steps.add("reduce_add/" + end, [=] {
    const std::vector parts{filled(bytes, "cpu:0"), filled(bytes, "cpu:1")};
    return collective(fresh, [parts] { return ls::comm::reduce_add(parts, ls::Device("cpu:0")); });
  });
}

struct Empty {
  ls::Tensor forward(const ls::Tensor& x) const { return x; }
};

std::function<void()> dispatch() {
  std::vector<Empty> replicas(2);
  const std::vector<ls::Tensor> inputs{ls::ones({2}, {.device = "cpu:0"}),
                                       ls::ones({2}, {.device = "cpu:1"})};
  return [replicas, inputs]() mutable { keep(ls::parallel_apply(replicas, inputs)); };
}

// A thread that never rests, until the last handle on it goes.
std::shared_ptr<void> busy_neighbour() {
  return std::make_shared<std::jthread>([](const std::stop_token& stop) {
    while (!stop.stop_requested()) keep(stop);
  });
}

ls::Tensor two_floats() {
  return ls::from_values(std::vector<float>{1, 2}, {2}, ls::Device("cpu:0"));
}

std::function<void()> add() {
  return [a = two_floats(), b = two_floats()] {
    const ls::NoGradGuard guard;
    keep(a + b);
  };
}

std::function<void()> add_backward() {
  const ls::Tensor a = two_floats();
  a.requires_grad_();
  return [a, b = two_floats(), gradient = two_floats()] {
    (a + b).backward(gradient);
    a.set_grad({});
  };
}

std::function<void()> tiny_step(int count) {
  std::vector<ls::Device> devices = ls::host_devices();
  devices.resize(static_cast<std::size_t>(count));
  struct Training {
    ls::DataParallel<Tiny> model;
    ls::optim::SGD sgd;
    ls::Tensor x = Tiny::input(Tiny::kBatch);
    ls::Tensor y = Tiny::target(Tiny::kBatch).to("cpu:0");
    explicit Training(const std::vector<ls::Device>& on)
        : model(Tiny{}, on), sgd(model.parameters(), {.lr = 1e-3}) {}
  };
  return [training = std::make_shared<Training>(devices)] {
    training->sgd.zero_grad();
    Tiny::loss(training->model(training->x), training->y).backward();
    training->sgd.step();
  };
}

template <class Model>
int train_and_print_memory(Model& model, ls::Device device) {
  const auto parameters = ls::parameters(model);
  const std::vector<ls::Tensor> tensors(parameters.begin(), parameters.end());
  ls::optim::SGD sgd{tensors, {.lr = 1e-3}};
  const ls::Tensor x = Mlp::input(Mlp::kBatch);
  const ls::Tensor y = Mlp::target(Mlp::kBatch).to(device);
  for (int i = 0; i < 3; ++i) {
    sgd.zero_grad();
    Mlp::loss(model(x), y).backward();
    sgd.step();
  }
  std::vector<ls::Device> devices = ls::host_devices();
  devices.emplace_back();
  std::size_t held = 0, peaks = 0, bytes = 0;
  for (const ls::Device each : devices) {
    ls::synchronize(each);
    held += ls::memory_stats(each).allocated_bytes;
    peaks += ls::memory_stats(each).peak_bytes;
  }
  for (const ls::Tensor& tensor : tensors) {
    bytes += static_cast<std::size_t>(tensor.numel()) * sizeof(float);
  }
  std::cout << held << ' ' << peaks << ' ' << bytes << '\n';
  return 0;
}

struct PlainMlp {
  Mlp net;
  ls::Tensor operator()(const ls::Tensor& x) { return net.forward(x.to("cpu:0")); }
};

int memory(std::size_t count) {
  if (count == 0) {
    PlainMlp model;
    ls::to(model, "cpu:0");
    return train_and_print_memory(model, "cpu:0");
  }
  std::vector<ls::Device> devices = ls::host_devices();
  devices.resize(count);
  ls::DataParallel model{Mlp{}, devices};
  return train_and_print_memory(model, model.output_device());
}

int count(std::string_view what, long times) {
  std::function<void()> call;
  if (what == "add") call = add();
  if (what == "add_backward") call = add_backward();
  if (what == "dispatch") call = dispatch();
  if (what == "tiny_step") call = tiny_step(1);
  if (what == "tiny_step_2") call = tiny_step(2);
  if (!call) {
    std::cerr << "compare_calls count: no such thing as " << what << '\n';
    return 2;
  }
  for (long i = 0; i < times; ++i) call();
  return 0;
}

constexpr auto kSizes = {8, 1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 26};

void serve_all_reduce() {
  serve_ranks(true, [](Steps& steps, const ls::distributed::ProcessGroup& group) {
    for (const std::int64_t bytes : kSizes) {
      steps.add("all_reduce/" + std::to_string(bytes), [&group, bytes] {
        const ls::Tensor values = ls::zeros({bytes / 4}, {.device = group.device()});
        return Step{[all = group.blocking(), values] { (void)all.all_reduce(values); }};
      });
    }
  });
}

void serve_all() {
  Steps steps;
  for (const std::int64_t bytes : kSizes) {
    for (const bool fresh : {false, true}) add_collectives(steps, bytes, fresh);
  }
  steps.add("dispatch/free", [] { return Step{dispatch()}; });
  steps.add("dispatch/busy", [] { return Step{dispatch(), nullptr, busy_neighbour}; });
  steps.add("eager/add", [] { return Step{add()}; });
  steps.add("eager/add_backward", [] { return Step{add_backward()}; });
  serve(steps);
}

}  // namespace
}  // namespace compare

int main(int argc, char** argv) {
  // Without this malloc keeps large blocks that are given back to it, and fresh memory is not
  // fresh.
  mallopt(M_MMAP_THRESHOLD, 1 << 16);
  if (argc == 3 && std::string_view(argv[1]) == "memory") {
    lockstep::set_host_device_count(16);
    return compare::memory(std::stoul(argv[2]));
  }
  lockstep::set_host_device_count(2);
  if (argc == 4 && std::string_view(argv[1]) == "count") {
    return compare::count(argv[2], std::strtol(argv[3], nullptr, 10));
  }
  if (argc == 2 && std::string_view(argv[1]) == "ranks") {
    compare::serve_all_reduce();
    return 0;
  }
  compare::serve_all();
}
