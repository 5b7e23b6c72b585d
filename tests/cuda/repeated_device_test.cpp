// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/comm/gather.hpp>
#include <lockstep/parallel/criterion.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/parallel/parallel_apply.hpp>
#include <lockstep/parallel/replica_group.hpp>
#include <lockstep/tensor/creation.hpp>

#include <cudasim/cudasim.hpp>

#include "cuda/launches.hpp"
#include "cuda/schedules.hpp"
#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

// A GPU that is listed several times has a stream for each of its replicas, and what they share
// with the device's other streams stays in order. The order is the simulator's to judge.
namespace lockstep {
namespace repeated_device_test {

using Streams = std::vector<std::optional<Stream>>;
using Values = std::vector<float>;
using testing::throws;

const std::vector<Device> kTwice = {"cuda:0", "cuda:0"};
const std::vector<Device> kMixed = {"cuda:0", "cuda:1", "cuda:0", "cuda:0", "cuda:1"};

Values values_of(const Tensor& tensor) {
  const Tensor host = tensor.to("cpu");
  const auto* first = host.const_data_ptr<float>();
  return Values(first, first + host.numel());
}

Tensor counting(const Shape& shape, float step) {
  Values values;
  for (std::int64_t i = 0; i < numel(shape); ++i) {
    values.push_back(step * static_cast<float>(i % 7 - 3));
  }
  return from_values(values, shape);
}

// Remembers the stream that each replica finds current.
struct TellsItsStream {
  Streams* streams;
  Tensor forward(const Tensor& x) const {
    (*streams)[replicas::index()] = current_stream(x.device());
    return x + 1;
  }
};

Streams streams_of(const std::vector<Device>& devices) {
  Streams streams(devices.size());
  DataParallel model{TellsItsStream{&streams}, devices};
  model(zeros({static_cast<std::int64_t>(devices.size()), 2}, {.device = devices[0]}));
  return streams;
}

TEST(RepeatedDevice, EachReplicaHasAStreamAndKeepsIt) {
  const Streams first = streams_of(kMixed);
  EXPECT_EQ(first[0], default_stream("cuda:0"));
  EXPECT_EQ(first[1], default_stream("cuda:1"));
  for (std::size_t i = 0; i < first.size(); ++i) {
    ASSERT_TRUE(first[i].has_value());
    EXPECT_EQ(first[i]->device(), kMixed[i]);
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(first[i], first[j]) << i << ' ' << j;
  }
  EXPECT_EQ(streams_of(kMixed), first);
}

TEST(RepeatedDevice, EachReplicaHasAStreamWhenThePoolHasComeRound) {
  const Device device = "cuda:6";
  const std::optional<Stream> second = streams_of({device, device})[1];
  const auto until_second = [&] {
    int taken = 1;
    while (pool_stream(device) != *second) ++taken;
    return taken;
  };
  (void)until_second();
  const int round = until_second();
  for (int i = 1; i < round; ++i) (void)pool_stream(device);  // now it would be the second again
  const Streams three = streams_of({device, device, device});
  EXPECT_EQ(three[1], second);
  EXPECT_NE(three[2], second);
}

TEST(RepeatedDevice, TheFirstReplicaKeepsTheCallersStream) {
  Stream mine = pool_stream("cuda:0");
  if (mine == streams_of(kTwice)[1]) mine = pool_stream("cuda:0");  // the pool has come round
  const StreamGuard guard(mine);
  const Streams streams = streams_of(kTwice);
  EXPECT_EQ(streams[0], mine);
  EXPECT_NE(streams[1], mine);
}

TEST(RepeatedDevice, HostDevicesKeepTheirStreams) {
  const Streams streams = streams_of({"cpu:0", "cpu:0"});
  EXPECT_EQ(streams[0], default_stream("cpu:0"));
  EXPECT_EQ(streams[1], default_stream("cpu:0"));
}

// Two layers, and a buffer that each replica writes.
struct Net {
  nn::Linear in{6, 16};
  nn::Linear out{16, 3};
  Buffer calls{zeros({1})};

  Tensor forward(const Tensor& x) {
    calls.add_(ones({1}, {.device = x.device()}));
    return out(tanh(in(x)));
  }
};

Net fixed_net() {
  Net net;
  net.in.weight.set_data(counting({16, 6}, 0.1F));
  net.in.bias.set_data(counting({16}, 0.05F));
  net.out.weight.set_data(counting({3, 16}, 0.07F));
  net.out.bias.set_data(counting({3}, 0.02F));
  return net;
}

// The parameters after a few steps, and what was put out on the way.
std::vector<Values> train(const std::vector<Device>& devices, int steps) {
  DataParallel model{fixed_net(), devices};
  optim::SGD optimizer(parameters(model), {.lr = 0.05, .momentum = 0.9});
  std::vector<Values> seen;
  for (int step = 0; step < steps; ++step) {
    const Tensor x = counting({10, 6}, 0.1F + 0.01F * static_cast<float>(step));
    optimizer.zero_grad();
    const Tensor y = model(x);
    (y * y).mean().backward();
    optimizer.step();
    seen.push_back(values_of(y));
  }
  for (const Tensor& parameter : parameters(model)) seen.push_back(values_of(parameter));
  return seen;
}

void expect_near(const std::vector<Values>& got, const std::vector<Values>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].size(), expected[i].size());
    for (std::size_t j = 0; j < got[i].size(); ++j) ASSERT_NEAR(got[i][j], expected[i][j], 1e-5F);
  }
}

TEST(RepeatedDevice, TrainsAsOnTheHost) {
  const auto expected = train({"cpu"}, 3);
  testing::under_each_policy([&] { expect_near(train(kTwice, 3), expected); }, 10);
  testing::under_each_policy([&] { expect_near(train(kMixed, 3), expected); }, 10);
}

// Everything that a replica was given or has returned goes as soon as nothing more is issued.
struct Late {
  nn::Linear linear{4, 4};
  Tensor forward(const Tensor& x) const {
    Tensor y = linear(x);
    for (int i = 0; i < 4; ++i) y = y + x;
    return y;
  }
};

TEST(RepeatedDevice, MemoryStaysUntilTheStreamIsThroughWithIt) {
  testing::under_many_schedules([] {
    const NoGradGuard no_grad;
    std::vector<Late> modules;
    for (std::size_t i = 0; i < 2; ++i) {
      modules.emplace_back();
      modules[i].linear.weight.set_data(zeros({4, 4}, {.device = "cuda:0"}));
      modules[i].linear.bias.set_data(ones({4}, {.device = "cuda:0"}));
    }
    std::vector<Tensor> inputs = {ones({2, 4}).to("cuda:0"), ones({3, 4}).to("cuda:0")};
    std::vector<Tensor> outputs = parallel_apply(modules, inputs, kTwice);
    inputs.clear();
    modules.clear();
    const Tensor sum = outputs[0].sum() + outputs[1].sum();
    outputs.clear();
    const Tensor taken = zeros({3, 4}, {.device = "cuda:0"}) + 1;
    EXPECT_EQ(values_of(sum), Values{5 * 20});
    EXPECT_EQ(values_of(taken.sum()), Values{12});
  });
}

struct ThrowsInTheSecond {
  nn::Linear linear{4, 2};
  Buffer calls{zeros({2})};
  bool throws = true;

  Tensor forward(const Tensor& x) {
    calls.add_(ones({2}, {.device = x.device()}));
    Tensor y = linear(x);
    if (replicas::index() == 1 && throws) throw std::invalid_argument("in the second");
    return y;
  }
};

TEST(RepeatedDevice, AFailedReplicaLeavesEverythingUsable) {
  testing::under_each_policy([] {
    DataParallel model{ThrowsInTheSecond{}, kTwice};
    EXPECT_TRUE(throws<std::invalid_argument>([&] { model(ones({4, 4})); }, "in the second"));
    model.module().throws = false;
    EXPECT_EQ(model(ones({6, 4})).size(0), 6);
  });
}

// The one that threw still reads its parameters and writes its buffer when others write them.
TEST(RepeatedDevice, WhatAFailedReplicaUsesIsNotOverwritten) {
  testing::under_many_schedules([] {
    const NoGradGuard no_grad;
    std::vector<ThrowsInTheSecond> modules(2);
    for (ThrowsInTheSecond& module : modules) to(module, "cuda:0");
    const std::vector<Tensor> inputs(2, ones({3, 4}).to("cuda:0"));
    EXPECT_TRUE(throws<std::invalid_argument>([&] { parallel_apply(modules, inputs, kTwice); },
                                              "in the second"));
    modules[1].linear.weight.zero_();
    EXPECT_TRUE(throws<std::invalid_argument>([&] { parallel_apply(modules, inputs, kTwice); },
                                              "in the second"));
    modules[1].calls.zero_();
    EXPECT_EQ(values_of(modules[1].linear.weight), Values(8, 0));
    EXPECT_EQ(values_of(modules[1].calls), Values(2, 0));
  });
}

TEST(RepeatedDevice, WhatAFailedReplicaHasWrittenCanBeRead) {
  testing::under_many_schedules([] {
    const NoGradGuard no_grad;
    std::vector<ThrowsInTheSecond> modules(2);
    for (ThrowsInTheSecond& module : modules) to(module, "cuda:0");
    const std::vector<Tensor> inputs(2, ones({3, 4}).to("cuda:0"));
    EXPECT_TRUE(throws<std::invalid_argument>([&] { parallel_apply(modules, inputs, kTwice); },
                                              "in the second"));
    EXPECT_EQ(values_of(modules[1].calls), Values(2, 1));
  });
}

TEST(RepeatedDevice, ABufferThatForwardReplacesCanBeRead) {
  struct Replaces {
    Buffer calls{zeros({1000})};
    Tensor forward(const Tensor& x) {
      calls = Buffer(calls + ones({1000}, {.device = x.device()}));
      return x + 1;
    }
  };
  testing::under_many_schedules([] {
    const NoGradGuard no_grad;
    std::vector<Replaces> modules(2);
    for (Replaces& module : modules) to(module, "cuda:0");
    const std::vector<Tensor> inputs(2, ones({3, 4}).to("cuda:0"));
    parallel_apply(modules, inputs, kTwice);
    const Tensor twice = modules[1].calls * 2;
    modules.clear();
    EXPECT_EQ(values_of(twice), Values(1000, 2));
  });
}

// A leaf that is first used in a replica gets its gradient on the replica's stream.
struct Times {
  Parameter weight;
  Tensor forward(const Tensor& x) const { return x * weight; }
};

std::vector<Times> two_of(const Tensor& first, const Tensor& second) {
  return {Times{Parameter(first)}, Times{Parameter(second)}};
}

TEST(RepeatedDevice, TheGradientsOfLeavesCanBeReadAfterBackward) {
  testing::under_many_schedules([] {
    const TensorOptions on_gpu{.device = "cuda:0"};
    std::vector<Times> modules = two_of(ones({4}, on_gpu), ones({4}, on_gpu));
    const std::vector<Tensor> inputs(2, ones({2, 4}).to("cuda:0"));
    for (int times = 1; times <= 2; ++times) {
      const auto outputs = parallel_apply(modules, inputs, kTwice);
      (outputs[0].sum() + outputs[1].sum()).backward();
      for (const Times& module : modules) {
        EXPECT_EQ(values_of(module.weight.grad()), Values(4, 2 * static_cast<float>(times)));
      }
    }
  });
}

// Without any memory that is freed in between, whose order would be theirs, too.
TEST(RepeatedDevice, BackwardsCallerWaitsForTheReplicasStreams) {
  testing::under_many_schedules([] {
    const TensorOptions on_gpu{.device = "cuda:0"};
    std::vector<Times> modules = two_of(ones({4}, on_gpu), ones({4}, on_gpu));
    const std::vector<Tensor> inputs(2, ones({4}).to("cuda:0"));
    const Tensor gradient = ones({4}, on_gpu);
    for (int times = 0; times < 2; ++times) {
      const auto outputs = parallel_apply(modules, inputs, kTwice);
      autograd::backward(outputs, {gradient, gradient});
    }
    EXPECT_EQ(values_of(modules[1].weight.grad()), Values(4, 2));
  });
}

TEST(RepeatedDevice, GradientsMayGoAfterAStep) {
  testing::under_many_schedules([] {
    const TensorOptions on_gpu{.device = "cuda:0"};
    std::vector<Times> modules = two_of(ones({4}, on_gpu), ones({4}, on_gpu));
    optim::SGD optimizer(std::vector<Parameter>{modules[0].weight, modules[1].weight}, {.lr = 1});
    const std::vector<Tensor> inputs(2, ones({2, 4}).to("cuda:0"));
    const auto outputs = parallel_apply(modules, inputs, kTwice);
    (outputs[0].sum() + outputs[1].sum()).backward();
    optimizer.step();
    optimizer.zero_grad();
    EXPECT_EQ(values_of(modules[1].weight), Values(4, -1));
  });
}

TEST(RepeatedDevice, CapturedGradientsCanBeRead) {
  testing::under_many_schedules([] {
    const TensorOptions on_gpu{.device = "cuda:0"};
    std::vector<Times> modules = two_of(ones({4}, on_gpu), ones({4}, on_gpu));
    const std::vector<Tensor> inputs(2, ones({2, 4}).to("cuda:0"));
    const auto outputs = parallel_apply(modules, inputs, kTwice);
    std::vector<Tensor> gradients = autograd::grad({outputs[0].sum() + outputs[1].sum()},
                                                   {modules[0].weight, modules[1].weight});
    const Tensor sum = gradients[0] + gradients[1];
    gradients.clear();
    EXPECT_EQ(values_of(sum), Values(4, 4));
  });
}

// What only the graph still holds is freed by backward, on the stream that it belongs to.
TEST(RepeatedDevice, ModulesAndInputsMayGoBeforeBackward) {
  testing::under_many_schedules([] {
    const Tensor x = ones({4}, {.device = "cuda:0", .requires_grad = true});
    const Tensor gradient = ones({4}, {.device = "cuda:0"});
    std::vector<Tensor> outputs;
    {
      std::vector<Times> modules =
          two_of(full({4}, 3, {.device = "cuda:0"}), full({4}, 5, {.device = "cuda:0"}));
      for (const Times& module : modules) module.weight.requires_grad_(false);
      const std::vector<Tensor> inputs = {x * 1, x * 1};
      outputs = parallel_apply(modules, inputs, kTwice);
    }
    autograd::backward(outputs, {gradient, gradient});
    EXPECT_EQ(values_of(x.grad()), Values(4, 8));
  });
}

TEST(RepeatedDevice, ReplicasMeetInsideForward) {
  struct Meets {
    Tensor forward(const Tensor& x) const { return x + replicas::all_reduce(x.sum()); }
  };
  testing::under_each_policy([] {
    DataParallel model{Meets{}, kMixed};
    EXPECT_EQ(values_of(model(ones({5, 1}))), Values(5, 6));
  });
}

// Replicas of one GPU have their outputs put together by one launch, if these are made of sixteen
// bytes each; its order is that of the copies in its place.
TEST(RepeatedDevice, OutputsAreGatheredByOneLaunch) {
  testing::under_each_policy([] {
    std::vector<Tensor> parts;
    for (int i = 0; i < 3; ++i) parts.push_back(counting({2, 8}, float(i + 1)).to("cuda:0"));
    Tensor whole;
    const auto launches = testing::launched([&] { whole = comm::gather(parts); });
    EXPECT_EQ(launches, std::vector<std::string>{"TogetherKernel"});
    Values expected;
    for (int i = 0; i < 3; ++i) {
      const Values part = values_of(counting({2, 8}, float(i + 1)));
      expected.insert(expected.end(), part.begin(), part.end());
    }
    EXPECT_EQ(values_of(whole), expected);

    const std::vector<Tensor> odd = {counting({1, 3}, 1).to("cuda:0"),
                                     counting({1, 3}, 2).to("cuda:0")};
    EXPECT_TRUE(testing::launched([&] { whole = comm::gather(odd); }).empty());
    EXPECT_EQ(values_of(whole), (Values{-3, -2, -1, -6, -4, -2}));
    EXPECT_TRUE(testing::launched([&] { whole = comm::gather(parts, 1); }).empty());
    EXPECT_EQ(whole.sizes(), (Shape{2, 24}));
  });
}

}  // namespace repeated_device_test
}  // namespace lockstep
