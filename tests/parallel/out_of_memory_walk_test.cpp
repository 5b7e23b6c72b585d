// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/io/checkpoint.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/comm.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/parallel/distributed.hpp>
#include <lockstep/parallel/parallel_apply.hpp>
#include <lockstep/parallel/per_replica.hpp>
#include <lockstep/parallel/replicate.hpp>
#include <lockstep/parallel/scatter_gather.hpp>
#include <lockstep/tensor/creation.hpp>

#include "io/training.hpp"
#include "support/devices.hpp"
#include "support/operator_new.hpp"
#include "support/out_of_memory_walk.hpp"

#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace out_of_memory_walk_test {

using distributed::ProcessGroup;
using testing::fails_at;
using testing::first_devices;
using testing::OutOfMemory;
using testing::Place;
using testing::set_parameters;
using testing::SmallNet;
using testing::tells_of_memory;
using testing::text_of;
using testing::walk;

// Six rows of three.
Tensor rows(std::int64_t step) {
  std::vector<float> values(18);
  double place = static_cast<double>(step);
  for (float& value : values) value = static_cast<float>(std::cos(place += 1.3));
  return from_values(values, {6, 3});
}

using Tensors = std::vector<Tensor>;

// The values of what a primitive gives, and of the gradients that `inputs` get of it.
std::vector<float> values(const Tensors& outputs, const Tensors& inputs = {}) {
  Tensors all = outputs;
  if (!inputs.empty()) {
    Tensors gradients;
    for (const Tensor& output : outputs) gradients.push_back(output.detach());
    for (const Tensor& gradient : autograd::grad(outputs, inputs, gradients)) {
      all.push_back(gradient);
    }
  }
  std::vector<float> found;
  for (const Tensor& tensor : all) {
    const std::vector<float> of_one = tensor.to_vector<float>();
    found.insert(found.end(), of_one.begin(), of_one.end());
  }
  return found;
}

TEST(OutOfMemoryWalk, EachPrimitive) {
  const std::vector<Device> devices = first_devices(3);
  const Device device = devices[0];
  SmallNet net;
  set_parameters(net, 1);
  to(net, device);
  const auto trained = parameters(net);
  const Tensors weights(trained.begin(), trained.end());
  std::vector<SmallNet> replicas = replicate(net, devices, true);
  const Tensor x = rows(1).to(device).requires_grad_();
  const Tensors parts = comm::scatter(x.detach(), devices);
  for (const Tensor& part : parts) part.requires_grad_();
  const auto parameters_of = [](const std::vector<SmallNet>& modules) {
    Tensors all;
    for (const SmallNet& module : modules) {
      for (const Parameter& parameter : parameters(module)) all.push_back(parameter);
    }
    return all;
  };
  const std::pair<const char*, std::function<std::vector<float>()>> primitives[] = {
      {"comm::scatter", [&] { return values(comm::scatter(x, devices)); }},
      {"comm::gather", [&] { return values({comm::gather(parts, 0, device)}); }},
      {"comm::broadcast", [&] { return values(comm::broadcast(x, devices)); }},
      {"comm::broadcast_coalesced",
       [&] {
         return values(comm::broadcast_coalesced({x, x}, devices)[2]);
       }},
      {"comm::reduce_add", [&] { return values({comm::reduce_add(parts, devices[1])}); }},
      {"comm::reduce_add_coalesced",
       [&] {
         return values(comm::reduce_add_coalesced({{parts[0]}, {parts[1]}}, device));
       }},
      {"scatter", [&] { return values(scatter(x, devices).parts(), {x}); }},
      {"gather", [&] { return values({gather(parts, devices[1])}, parts); }},
      {"replicate", [&] { return values(parameters_of(replicate(net, devices)), weights); }},
      {"parallel_apply", [&] { return values(parallel_apply(replicas, parts), parts); }},
      {"data_parallel", [&] { return values({data_parallel(net, x, devices)}, weights); }},
  };
  for (const auto& primitive : primitives) {
    const auto& run = primitive.second;
    const std::vector<float> expected = run();
    const auto visit = [&](Place place) {
      std::vector<float> found;
      if (fails_at(place, [&] { found = run(); })) found = run();
      EXPECT_EQ(found, expected);
    };
    if (!walk(primitive.first, visit)) return;
  }
}

// A model and its optimiser, always the same at first.
class Training {
 public:
  explicit Training(ReplicaBuffers buffers)
      : model_(fixed_net(), first_devices(3), {.buffers = buffers}),
        sgd_(model_.parameters(), {.lr = 0.1, .momentum = 0.9}) {}

  float step(std::int64_t number) {
    sgd_.zero_grad();
    const Tensor y = model_(rows(number));
    const Tensor loss = (y * y).mean();
    loss.backward();
    const float value = loss.item<float>();  // which may fail as well
    stepping_ = true;
    sgd_.step();
    stepping_ = false;
    return value;
  }

  // A step of the optimiser that has thrown may have changed some of the parameters.
  bool has_thrown_while_stepping() { return std::exchange(stepping_, false); }

  // Copies of all that a step changes.
  io::Checkpoint state() const {
    io::Checkpoint state{.model = state_dict(model_), .optimizer = sgd_.state_dict()};
    for (StateDict* dict : {&state.model, &state.optimizer}) {
      for (NamedTensor& entry : *dict) entry.tensor = entry.tensor.detach().clone();
    }
    return state;
  }
  void load(const io::Checkpoint& state) {
    load_state_dict(model_, state.model);
    sgd_.load_state_dict(state.optimizer);
  }

 private:
  static SmallNet fixed_net() {
    SmallNet net;
    set_parameters(net, 1);
    return net;
  }

  DataParallel<SmallNet> model_;
  optim::SGD sgd_;
  bool stepping_ = false;
};

// `before` steps, one in which memory runs short, which is made up for, and two more.
void walk_a_step(const char* operation, ReplicaBuffers buffers, std::int64_t before) {
  std::vector<float> expected;
  Training twin(buffers);
  for (std::int64_t step = 0; step < before + 3; ++step) expected.push_back(twin.step(step));
  walk(operation, [&](Place place) {
    Training training(buffers);
    std::vector<float> losses;
    for (std::int64_t step = 0; step < before; ++step) losses.push_back(training.step(step));
    const io::Checkpoint state = training.state();
    float loss = 0;
    const bool failed = fails_at(place, [&] { loss = training.step(before); });
    if (training.has_thrown_while_stepping()) training.load(state);
    losses.push_back(failed ? training.step(before) : loss);
    for (std::int64_t step = before + 1; step < before + 3; ++step) {
      losses.push_back(training.step(step));
    }
    EXPECT_EQ(losses, expected);
  });
}

TEST(OutOfMemoryWalk, AStepOfDataParallel) {
  walk_a_step("first step", ReplicaBuffers::first, 0);
  walk_a_step("second step", ReplicaBuffers::first, 1);
}

TEST(OutOfMemoryWalk, AStepWithStreamsOfItsOwn) {
  const StreamGuard guard(copy_stream("cpu:1"));
  walk_a_step("step on another stream", ReplicaBuffers::first, 1);
}

TEST(OutOfMemoryWalk, AStepWithSynchronizedBuffers) {
  walk_a_step("first step, synchronized", ReplicaBuffers::synchronized, 0);
  walk_a_step("second step, synchronized", ReplicaBuffers::synchronized, 1);
}

TEST(OutOfMemoryWalk, AStepWithMergedBuffers) {
  walk_a_step("step, merged", ReplicaBuffers::merged, 1);
}

struct Counting {
  PerReplica<std::int64_t> rows{0, std::plus<>{}};
  Tensor forward(const Tensor& x) const { return x; }
};

TEST(OutOfMemoryWalk, EachReplicaHasOneValue) {
  const std::vector<Device> devices = first_devices(3);
  const auto visit = [&](Place place) {
    const Counting module;
    const auto run = [&] { (void)replicate(module, devices); };
    if (fails_at(place, run)) run();
    EXPECT_EQ(module.rows.values().size(), devices.size());
  };
  testing::walk_places("PerReplica", "memory", 1, &OutOfMemory::has_struck, visit);
}

// The losses of each rank.
using Losses = std::vector<std::vector<float>>;

// `at_step(step, group)` is called before each step.
template <class AtStep>
Losses train_ddp(const AtStep& at_step) {
  Losses losses(2);
  distributed::run(first_devices(2), [&](const ProcessGroup& group) {
    SmallNet net;
    set_parameters(net, 1);
    to(net, group.device());
    DistributedDataParallel model{net, group};
    optim::SGD sgd{model.parameters(), {.lr = 0.1, .momentum = 0.9}};
    for (std::int64_t step = 0; step < 3; ++step) {
      at_step(step, group);
      sgd.zero_grad();
      const Tensor y = model(rows(10 * group.rank() + step).to(group.device()));
      const Tensor loss = (y * y).mean();
      loss.backward();
      sgd.step();
      losses[static_cast<std::size_t>(group.rank())].push_back(loss.item<float>());
    }
  });
  return losses;
}

// A rank whose group was left while an operation of its own was on its way hears of that from the
// next one.
bool tells_of_a_rank_without_memory(const std::exception_ptr& error) {
  return tells_of_memory(error) ||
         text_of(error).find("has thrown std::bad_alloc") != std::string::npos;
}

TEST(OutOfMemoryWalk, StepsOfDistributedDataParallel) {
  const Losses expected = train_ddp([](std::int64_t, const ProcessGroup&) {});
  for (const std::int64_t short_at : {0, 1}) {
    walk(
        short_at == 0 ? "DistributedDataParallel" : "DistributedDataParallel, second step",
        [&](Place place) {
          std::optional<OutOfMemory> scarce;
          std::barrier begin(2, [&]() noexcept { scarce.emplace(place.number, place.lasting); });
          std::exception_ptr error;
          Losses losses = expected;
          try {
            losses = train_ddp([&](std::int64_t step, const ProcessGroup&) {
              if (step == short_at) begin.arrive_and_wait();
            });
          } catch (...) {
            error = std::current_exception();
          }
          scarce.reset();
          EXPECT_EQ(losses, expected);
          if (error) {
            EXPECT_TRUE(OutOfMemory::has_struck() && tells_of_a_rank_without_memory(error))
                << text_of(error);
          }
        },
        testing::Kept::in_flight);
  }
}

}  // namespace out_of_memory_walk_test
}  // namespace lockstep
