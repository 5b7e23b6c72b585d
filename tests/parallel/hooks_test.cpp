// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/grad_hooks.hpp>
#include <lockstep/module/hooks.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/parallel/replica_group.hpp>
#include <lockstep/tensor/creation.hpp>

#include "parallel/layers.hpp"
#include "support/devices.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace ls = lockstep;
using ls::testing::first_devices;
using ls::testing::L0;
using ls::testing::x5;
using ls::testing::y5;

namespace hooks_test {

using Values = std::vector<double>;

TEST(Hooks, R15AForwardHookRunsOnceForEachReplica) {
  std::mutex mutex;
  std::vector<std::string> devices;
  std::int64_t rows = 0;
  ls::DataParallel model{
      ls::register_forward_hook(L0{},
                                [&](const L0& module, const auto& inputs, const ls::Tensor& y) {
                                  const std::lock_guard lock(mutex);
                                  EXPECT_EQ(module.weight.device(), y.device());
                                  EXPECT_EQ(std::get<0>(inputs).device(), y.device());
                                  devices.push_back(y.device().str());
                                  rows += y.size(0);
                                }),
      first_devices(3)};
  const ls::Tensor y = model(x5());
  EXPECT_EQ(y.to_vector<double>(), y5());
  std::sort(devices.begin(), devices.end());
  EXPECT_EQ(devices, (std::vector<std::string>{"cpu:0", "cpu:1", "cpu:2"}));
  EXPECT_EQ(rows, 5);
  y.sum().backward();
  EXPECT_EQ(model.module().module().bias.grad().to_vector<double>(), (Values{5, 5}));
}

// Adds hooks to its argument and to its parameter, at the same time as all other replicas: they are
// results of one operation.
struct Watched {
  static constexpr int kHooks = 40;
  ls::Parameter weight{ls::ones({2}, ls::Dtype::f64)};
  std::shared_ptr<std::atomic<int>> calls = std::make_shared<std::atomic<int>>(0);

  ls::Tensor forward(const ls::Tensor& x) const {
    const auto count = [calls = calls](const ls::Tensor&) { ++*calls; };
    ls::replicas::barrier();
    for (int i = 0; i < kHooks; ++i) {
      (void)x.register_hook(count);
      weight.register_hook(count).remove();
      (void)weight.register_hook(count);
      x.retain_grad();
    }
    return x * weight;
  }
};

TEST(Hooks, ReplicasMayAddGradientHooksAtOnce) {
  constexpr int kReplicas = 4;
  ls::DataParallel model{Watched{}, first_devices(kReplicas)};
  const ls::Tensor x = ls::ones({kReplicas, 2}, ls::Dtype::f64);
  x.requires_grad_();
  model(x).sum().backward();
  EXPECT_EQ(*model.module().calls, 2 * kReplicas * Watched::kHooks);
}

// Asks for gradients of its parameter while the other replicas change the hooks of theirs.
struct Penalised {
  ls::Parameter weight{ls::ones({2}, ls::Dtype::f64)};

  ls::Tensor forward(const ls::Tensor& x) const {
    const auto twice = [](const ls::Tensor& gradient) { return gradient * 2; };
    ls::Tensor total = ls::zeros({1}, x.options());
    ls::replicas::barrier();
    for (int i = 0; i < 100; ++i) {
      const ls::RemovableHandle hook = weight.register_hook(twice);
      total = total + ls::autograd::grad({(x * weight).sum()}, {weight})[0].sum();
      hook.remove();
    }
    return total;
  }
};

TEST(Hooks, ReplicasMayRunPassesWhileOthersAddGradientHooks) {
  const ls::DataParallel model{Penalised{}, first_devices(4)};
  const ls::Tensor y = model(ls::ones({4, 2}, ls::Dtype::f64));
  EXPECT_EQ(y.to_vector<double>(), Values(4, 400));
}

TEST(Hooks, NamesStayAsTheyAre) {
  auto module = ls::register_forward_pre_hook(
      ls::register_forward_hook(L0{}, [](const auto&, const auto&, const auto&) {}),
      [](const auto&, const auto&) {});
  const auto named = ls::named_parameters(module);
  ASSERT_EQ(named.size(), 2U);
  EXPECT_EQ(named[0].name, "weight");
  EXPECT_EQ(named[1].name, "bias");
  struct Net {
    decltype(module) layer;
    ls::Tensor forward(const ls::Tensor& x) { return layer(x); }
  };
  Net net{module};
  EXPECT_EQ(ls::named_parameters(net)[0].name, "layer.weight");
  EXPECT_EQ(net.forward(x5()).to_vector<double>(), y5());
}

TEST(Hooks, WhatAHookReturnsTakesThePlaceOfArgumentsOrOutput) {
  auto doubled = ls::register_forward_hook(
      L0{}, [](const auto&, const auto&, const ls::Tensor& y) { return y * 2; });
  EXPECT_EQ(doubled(x5()).to_vector<double>()[0], 3);
  auto shifted = ls::register_forward_pre_hook(
      L0{}, [](const L0&, const auto& inputs) { return std::tuple(std::get<0>(inputs) + 1); });
  EXPECT_EQ(shifted(x5()).to_vector<double>()[0], 1.5 + 3);
  for (const std::size_t devices : {1U, 3U}) {
    ls::DataParallel model{shifted, first_devices(devices)};
    EXPECT_EQ(model(x5()).to_vector<double>()[1], 2.5 + 7);
  }
}

TEST(Hooks, ModesReachTheModuleWithin) {
  struct Moody {
    bool training = true;
    bool forward(const ls::Tensor&) const { return training; }
  };
  auto module = ls::register_forward_hook(Moody{}, [](const auto&, const auto&, bool) {});
  ls::eval(module);
  EXPECT_FALSE(module(x5()));
}

// Its hook does not name the mode, which is public.
struct WithHookAndMode {
  bool training = true;
  template <class Self, class Visitor>
  static void visit_members(Self& /*self*/, Visitor&& /*visit*/) {}
  bool forward(const ls::Tensor&) const { return training; }
};

TEST(Hooks, WrappersHideNoMode) {
  auto hooked = ls::register_forward_hook(WithHookAndMode{}, [](const auto&, const auto&, bool) {});
  ls::eval(hooked);
  EXPECT_FALSE(hooked(x5()));
  struct Net {
    ls::DataParallel<WithHookAndMode> part{WithHookAndMode{}, first_devices(1)};
    bool forward(const ls::Tensor& x) { return part(x)[0]; }
  };
  Net net;
  ls::eval(net);
  EXPECT_FALSE(net.forward(x5()));
}

TEST(Hooks, AroundALambda) {
  auto hooked = ls::register_forward_hook([](const ls::Tensor& x) { return x * 2; },
                                          [](const auto&, const auto&, const auto&) {});
  EXPECT_TRUE(ls::parameters(hooked).empty());
  ls::DataParallel model{hooked, first_devices(2)};
  EXPECT_EQ(model(x5()).to_vector<double>()[0], 2);
}

TEST(Hooks, APreHookMayReturnTheOneArgument) {
  auto shifted = ls::register_forward_pre_hook(
      L0{}, [](const L0&, const auto& inputs) { return std::get<0>(inputs) + 1; });
  EXPECT_EQ(shifted(x5()).to_vector<double>()[0], 1.5 + 3);
  using Pair = std::pair<int, int>;
  auto swapped =
      ls::register_forward_pre_hook([](const Pair& pair) { return pair.first - pair.second; },
                                    [](const auto&, const auto& inputs) {
                                      const Pair& pair = std::get<0>(inputs);
                                      return Pair{pair.second, pair.first};
                                    });
  EXPECT_EQ(swapped(Pair{1, 3}), 2);
}

}  // namespace hooks_test
