// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/replicate.hpp>
#include <lockstep/tensor/creation.hpp>

#include "parallel/layers.hpp"
#include "support/devices.hpp"
#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace ls = lockstep;
using ls::testing::f64;
using ls::testing::first_devices;
using ls::testing::L0;
using ls::testing::throws;

namespace replicate_test {

using Values = std::vector<double>;

template <class M>
M on_first_device(M module) {
  ls::to(module, "cpu:0");
  return module;
}

TEST(Replicate, R01ParametersAreOnTheReplicasDevice) {
  const L0 module = on_first_device(L0{});
  auto replicas = ls::replicate(module, first_devices(2));
  ASSERT_EQ(replicas.size(), 2U);
  for (int i = 0; i < 2; ++i) {
    const ls::Device device(ls::DeviceType::cpu, i);
    EXPECT_EQ(replicas[static_cast<std::size_t>(i)].weight.device(), device);
    EXPECT_EQ(replicas[static_cast<std::size_t>(i)]
                  .forward(f64({1, 1}, {1, 2}, device))
                  .to_vector<double>(),
              (Values{3.5, 6.5}));
  }
}

TEST(Replicate, X03OnlyOneReplicasOutputEntersTheLoss) {
  const L0 module = on_first_device(L0{});
  auto replicas = ls::replicate(module, first_devices(2));
  (void)replicas[0].forward(f64({1, 1}, {1, 2}, "cpu:0"));
  replicas[1].forward(f64({1, 2, 3, 4}, {2, 2}, "cpu:1")).sum().backward();
  EXPECT_EQ(module.weight.grad().to_vector<double>(), (Values{4, 6, 4, 6}));
  EXPECT_EQ(module.bias.grad().to_vector<double>(), (Values{2, 2}));
}

// The buffers of a BatchNorm.
struct Statistics {
  ls::Parameter weight{f64({1, 1}, {2})};
  ls::Buffer running_mean{f64({1, 2}, {2})};
  ls::Buffer running_var{f64({3, 4}, {2})};
  ls::Buffer num_batches_tracked{ls::zeros({}, {.dtype = ls::Dtype::i64})};
  ls::Tensor forward(const ls::Tensor& x) const { return x; }
};

TEST(Replicate, R06BuffersAreOnTheReplicasDevice) {
  const Statistics module = on_first_device(Statistics{});
  const auto replicas = ls::replicate(module, first_devices(2));
  for (int i = 0; i < 2; ++i) {
    const Statistics& replica = replicas[static_cast<std::size_t>(i)];
    for (const ls::Buffer& buffer : ls::buffers(replica)) {
      EXPECT_EQ(buffer.device(), ls::Device(ls::DeviceType::cpu, i));
    }
    EXPECT_EQ(replica.running_mean.to_vector<double>(), (Values{1, 2}));
    EXPECT_EQ(replica.running_var.to_vector<double>(), (Values{3, 4}));
    EXPECT_EQ(replica.num_batches_tracked.item<std::int64_t>(), 0);
  }
}

struct Tied {
  std::shared_ptr<L0> a = std::make_shared<L0>();
  std::shared_ptr<L0> b = a;
  L0 c;
  ls::Parameter also = c.weight;
};
struct TiedByMember {
  Tied tied;
  ls::Tensor forward(const ls::Tensor& x) const { return tied.b->forward(tied.a->forward(x)); }
};

TEST(Replicate, R02TiesAreKeptInsideEachReplica) {
  const TiedByMember module = on_first_device(TiedByMember{});
  const auto replicas = ls::replicate(module, first_devices(2));
  for (const TiedByMember& replica : replicas) {
    EXPECT_EQ(replica.tied.a, replica.tied.b);
    EXPECT_NE(replica.tied.a, module.tied.a);
    EXPECT_TRUE(replica.tied.also.is_same(replica.tied.c.weight));
    EXPECT_FALSE(replica.tied.also.is_same(module.tied.also));
  }
}

struct FirstAgain {
  ls::Parameter first{f64({2}, {1})};
  ls::Parameter between{f64({3}, {1})};
  ls::Parameter again = first;
  ls::Tensor forward() const { return (first * between * again).sum(); }
};

TEST(Replicate, R02TheFirstParameterIsFoundAgainBehindOthers) {
  const FirstAgain module = on_first_device(FirstAgain{});
  auto replicas = ls::replicate(module, first_devices(2));
  ls::Tensor total = ls::zeros({}, {.dtype = ls::Dtype::f64, .device = "cpu:0"});
  for (const FirstAgain& replica : replicas) {
    EXPECT_TRUE(replica.again.is_same(replica.first));
    total = total + replica.forward().to(ls::Device("cpu:0"));
  }
  total.backward();
  EXPECT_EQ(module.first.grad().to_vector<double>(), (Values{24}));
  EXPECT_EQ(module.between.grad().to_vector<double>(), (Values{8}));
}

TEST(Replicate, R03GradientsAreSummedIntoTheModule) {
  const L0 module = on_first_device(L0{});
  auto replicas = ls::replicate(module, first_devices(2));
  const ls::Tensor a = replicas[0].forward(f64({1, 0, 0, 1}, {2, 2}, "cpu:0"));
  const ls::Tensor b = replicas[1].forward(f64({1, 1, 2, -1}, {2, 2}, "cpu:1"));
  (a.sum() + b.sum().to(ls::Device("cpu:0"))).backward();
  EXPECT_EQ(module.weight.grad().to_vector<double>(), (Values{4, 1, 4, 1}));
  EXPECT_EQ(module.bias.grad().to_vector<double>(), (Values{4, 4}));
}

TEST(Replicate, R04ReplicasAreRealModules) {
  const auto replicas = ls::replicate(on_first_device(L0{}), first_devices(3));
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    const auto parameters = ls::named_parameters(replicas[i]);
    ASSERT_EQ(parameters.size(), 2U);
    EXPECT_EQ(parameters[0].name, "weight");
    EXPECT_EQ(parameters[0].tensor.device(), ls::Device(ls::DeviceType::cpu, static_cast<int>(i)));
    EXPECT_TRUE(parameters[0].tensor.requires_grad());
    EXPECT_FALSE(parameters[0].tensor.is_leaf());
  }
}

TEST(Replicate, R05ReplicaZeroSharesTheModulesMemory) {
  const L0 module = on_first_device(L0{});
  const auto replicas = ls::replicate(module, first_devices(2));
  EXPECT_EQ(replicas[0].weight.const_data_ptr<double>(), module.weight.const_data_ptr<double>());
  EXPECT_NE(replicas[1].weight.const_data_ptr<double>(), module.weight.const_data_ptr<double>());
}

struct Buffers {
  ls::Buffer t_rg{f64({2, 3}, {2})};
  ls::Buffer t_not_rg{f64({5, 7}, {2})};
  ls::Tensor forward(const ls::Tensor& x) const { return x * t_rg + t_not_rg; }
};

TEST(Replicate, R07ABufferThatRequiresGradGetsOne) {
  Buffers module = on_first_device(Buffers{});
  module.t_rg.requires_grad_();
  auto replicas = ls::replicate(module, first_devices(2));
  EXPECT_FALSE(replicas[1].t_not_rg.requires_grad());
  const ls::Tensor y = replicas[1].forward(f64({10, 20}, {1, 2}, "cpu:1"));
  EXPECT_EQ(y.to_vector<double>(), (Values{25, 67}));
  y.sum().backward();
  EXPECT_EQ(module.t_rg.grad().to_vector<double>(), (Values{10, 20}));
}

TEST(Replicate, R08DetachIsTheSameForAllReplicas) {
  auto replicas = ls::replicate(on_first_device(L0{}), first_devices(2), /*detach=*/true);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_FALSE(replicas[i].weight.requires_grad());
    EXPECT_EQ(ls::parameters(replicas[i]).size(), 2U);
    const ls::Tensor x = f64({1, 1}, {1, 2}, replicas[i].weight.device());
    EXPECT_FALSE(replicas[i].forward(x).requires_grad());
  }
}

TEST(Replicate, R09NoDevicesNoReplicas) { EXPECT_TRUE(ls::replicate(L0{}, {}).empty()); }

struct Empty {
  ls::Tensor forward(const ls::Tensor& x) const { return x; }
};

TEST(Replicate, R10AModuleWithoutParameters) {
  EXPECT_EQ(ls::replicate(Empty{}, first_devices(3)).size(), 3U);
}

TEST(Replicate, R11AFrozenParameterStaysFrozen) {
  L0 module = on_first_device(L0{});
  module.bias.requires_grad_(false);
  auto replicas = ls::replicate(module, first_devices(2));
  EXPECT_FALSE(replicas[1].bias.requires_grad());
  replicas[1].forward(f64({1, 1}, {1, 2}, "cpu:1")).sum().backward();
  EXPECT_TRUE(module.weight.grad().defined());
  EXPECT_FALSE(module.bias.grad().defined());
}

TEST(Replicate, R12AnAbsentParameterStaysAbsent) {
  L0 module = on_first_device(L0{});
  module.bias = ls::Parameter();
  const auto replicas = ls::replicate(module, first_devices(2));
  EXPECT_FALSE(replicas[1].bias.defined());
}

struct WithMode {
  L0 layer;
  bool training = true;
  ls::Tensor forward(const ls::Tensor& x) const { return layer.forward(x); }
};

TEST(Replicate, R14EvaluationModeIsCopied) {
  WithMode module = on_first_device(WithMode{});
  ls::eval(module);
  for (const WithMode& replica : ls::replicate(module, first_devices(2))) {
    EXPECT_FALSE(replica.training);
  }
}

TEST(Replicate, R19ADeviceListedTwiceHasTwoReplicas) {
  const L0 module = on_first_device(L0{});
  const std::vector<ls::Device> devices(3, ls::Device("cpu:0"));
  auto replicas = ls::replicate(module, devices);
  EXPECT_NE(replicas[1].weight.const_data_ptr<double>(),
            replicas[2].weight.const_data_ptr<double>());
  const ls::Tensor x = f64({1, 1}, {1, 2}, "cpu:0");
  (replicas[0].forward(x) + replicas[1].forward(x) + replicas[2].forward(x)).sum().backward();
  EXPECT_EQ(module.weight.grad().to_vector<double>(), (Values{3, 3, 3, 3}));
}

struct Containers {
  std::vector<ls::Parameter> list{ls::Parameter(f64({1}, {1})), ls::Parameter(f64({2}, {1}))};
  std::map<std::string, ls::Parameter> map{{"k", ls::Parameter(f64({3}, {1}))}};
  ls::Tensor forward(const ls::Tensor& x) const { return x * list[0] * list[1] * map.at("k"); }
};

TEST(Replicate, R20ListsAndMapsOfParameters) {
  const Containers module = on_first_device(Containers{});
  auto replicas = ls::replicate(module, first_devices(2));
  EXPECT_TRUE(replicas[1].list[1].requires_grad());
  EXPECT_TRUE(replicas[1].map.at("k").grad_fn() != nullptr);
  replicas[1].forward(f64({1}, {1}, "cpu:1")).sum().backward();
  EXPECT_EQ(module.map.at("k").grad().item(), 2.0);
}

TEST(Replicate, TheModuleMustBeOnTheFirstDevice) {
  L0 module;
  EXPECT_TRUE(throws<ls::ModuleError>([&] { ls::replicate(module, first_devices(2)); },
                                      "device cpu:0", "found one of them on device: cpu",
                                      "\"weight\""));
}

struct CopiesDeeply {
  ls::Parameter weight{ls::ones({2})};
  CopiesDeeply() = default;
  CopiesDeeply(const CopiesDeeply& other) : weight(other.weight.clone()) {}
  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("weight", self.weight);
  }
  ls::Tensor forward(const ls::Tensor& x) const { return x * weight; }
};

TEST(Replicate, AParameterOfTheCopysOwnIsRefused) {
  const CopiesDeeply module;
  ls::to(module, "cpu:0");
  EXPECT_TRUE(throws<ls::ModuleError>(
      [&] {
        ls::replicate(module, {"cpu:0", "cpu:0"});
      },
      "copy constructor", "\"weight\""));
}

TEST(Replicate, AParameterThatNoReplicaUsedGetsNoGradient) {
  struct Two {
    L0 used;
    L0 never;
    ls::Tensor forward(const ls::Tensor& x) const { return used.forward(x); }
  };
  const Two module = on_first_device(Two{});
  auto replicas = ls::replicate(module, first_devices(2));
  replicas[1].forward(f64({1, 1}, {1, 2}, "cpu:1")).sum().backward();
  EXPECT_TRUE(module.used.weight.grad().defined());
  EXPECT_FALSE(module.never.weight.grad().defined());
}

}  // namespace replicate_test
