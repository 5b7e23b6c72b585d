// SPDX-License-Identifier: Apache-2.0
#include <lockstep/module/clone.hpp>
#include <lockstep/module/hooks.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/parallel/per_replica.hpp>
#include <lockstep/parallel/replicate.hpp>
#include <lockstep/parallel/replication_callback.hpp>

#include "parallel/layers.hpp"
#include "support/devices.hpp"
#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <any>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ls = lockstep;
using ls::testing::first_devices;
using ls::testing::L0;
using ls::testing::throws;
using ls::testing::x5;

namespace replication_callback_test {

struct Call {
  std::string module;
  std::size_t copy_id;
  const ls::CallbackContext* context;
};
std::vector<Call> calls;

struct Part {
  std::string name;
  ls::Parameter weight{ls::ones({1})};
  std::shared_ptr<ls::CallbackContext> context = {};

  ls::Tensor forward(const ls::Tensor& x) const { return x; }
  void data_parallel_replicate(const std::shared_ptr<ls::CallbackContext>& shared,
                               std::size_t copy_id) {
    EXPECT_EQ(weight.device(), shared->devices[copy_id]) << "the replica is complete by then";
    if (copy_id == 0) shared->shared = name;
    EXPECT_EQ(std::any_cast<std::string>(shared->shared), name);
    context = shared;
    calls.push_back({name, copy_id, shared.get()});
  }
};

struct Net {
  Part a{"a"};
  std::vector<Part> rest{{"b"}, {"c"}};
  ls::Tensor forward(const ls::Tensor& x) const { return x; }
};

TEST(ReplicationCallback, E05CopyByCopyWithOneContextForEachSubModule) {
  calls.clear();
  Net net;
  ls::to(net, "cpu:0");
  const std::vector<Net> replicas = ls::replicate(net, first_devices(2));
  ASSERT_EQ(calls.size(), 6U);
  const std::vector<std::string> order = {"a", "b", "c", "a", "b", "c"};
  for (std::size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i].module, order[i]);
    EXPECT_EQ(calls[i].copy_id, i / 3);
    EXPECT_EQ(calls[i].context, calls[i % 3].context);
  }
  EXPECT_NE(calls[0].context, calls[1].context);
  EXPECT_NE(calls[1].context, calls[2].context);
  EXPECT_EQ(replicas[0].a.context->devices, first_devices(2));
  EXPECT_EQ(net.a.context, nullptr) << "the module itself is no replica";
}

TEST(ReplicationCallback, ReplicasFromElsewhereAreToldInTheSameOrder) {
  Net net;
  ls::to(net, "cpu:0");
  std::vector<Net> replicas = ls::replicate(net, first_devices(2));
  calls.clear();
  ls::execute_replication_callbacks(replicas, first_devices(2));
  ASSERT_EQ(calls.size(), 6U);
  EXPECT_EQ(calls[4].module, "b");
  EXPECT_EQ(calls[4].copy_id, 1U);
  EXPECT_EQ(calls[4].context, calls[1].context);
  EXPECT_NE(calls[4].context, calls[0].context);
  EXPECT_EQ(replicas[1].rest[0].context.get(), calls[4].context);
}

TEST(ReplicationCallback, ReplicasFromElsewhereHaveADeviceEach) {
  Net net;
  ls::to(net, "cpu:0");
  std::vector<Net> replicas = ls::replicate(net, first_devices(2));
  EXPECT_TRUE(
      throws<ls::ValueError>([&] { ls::execute_replication_callbacks(replicas, first_devices(1)); },
                             "execute_replication_callbacks: 1 devices were given for 2 replicas"));
}

// Counts the rows that a replica has seen.
struct Counting {
  ls::PerReplica<std::int64_t> rows{0, std::plus<>{}};
  ls::PerReplica<std::string> log{
      "", [](const std::string& a, const std::string& b) { return a + '|' + b; }};
  ls::Parameter weight{ls::ones({1})};
  ls::Tensor forward(const ls::Tensor& x) const {
    *rows += x.size(0);
    log->append(std::to_string(x.size(0)));
    return x * 2;
  }
};

TEST(PerReplica, StaysWithEachReplicaAndIsMerged) {
  ls::DataParallel model{Counting{}, first_devices(3)};
  model(x5().to(ls::Dtype::f32));
  model(x5().to(ls::Dtype::f32));
  const Counting& module = model.module();
  EXPECT_EQ(module.rows.values(), (std::vector<std::int64_t>{4, 4, 2}));
  EXPECT_EQ(module.rows.merged(), 10);
  EXPECT_EQ(module.log.merged(), "22|22|11");
  EXPECT_EQ(*module.rows, 4) << "the module itself has the first replica's";
}

TEST(PerReplica, TheModuleItselfIsTheFirstReplica) {
  ls::DataParallel model{Counting{}, first_devices(2)};
  model(ls::ones({1, 2}));  // one chunk: the module itself is called
  model(ls::ones({4, 2}));
  EXPECT_EQ(model.module().rows.values(), (std::vector<std::int64_t>{3, 2}));
  Counting copy = model.module();
  copy.rows.reset();
  EXPECT_EQ(model.module().rows.merged(), 0) << "a copy of the module shares its state";
}

TEST(PerReplica, AClonesValuesAreItsOwnInEveryReplica) {
  struct Tied {
    Counting counting;
    ls::PerReplica<std::int64_t> same = counting.rows;
    ls::Tensor forward(const ls::Tensor& x) const { return counting.forward(x); }
  };
  ls::DataParallel model{Tied{}, first_devices(2)};
  model(ls::ones({4, 2}));
  ls::DataParallel copy{ls::clone(model.module()), first_devices(2)};
  ls::DataParallel<Tied> whole = ls::clone(model);
  model(ls::ones({2, 2}));
  whole(ls::ones({6, 2}));
  using Rows = std::vector<std::int64_t>;
  EXPECT_EQ(model.module().counting.rows.values(), (Rows{3, 3}));
  EXPECT_EQ(copy.module().counting.rows.values(), (Rows{2, 2}));
  EXPECT_EQ(whole.module().counting.rows.values(), (Rows{5, 5}));
  EXPECT_EQ(whole.module().same.values(), (Rows{5, 5})) << "tied to the other";
  EXPECT_FALSE(whole.module().counting.weight.is_same(model.module().counting.weight));
}

TEST(PerReplica, ACloneHasTensorsOfItsOwnInItsValues) {
  struct Remembering {
    ls::PerReplica<std::vector<ls::Tensor>> seen{std::vector<ls::Tensor>()};
    ls::Tensor forward(const ls::Tensor& x) const {
      seen->push_back(x);
      return x;
    }
  };
  const Remembering net;
  (void)net.forward(ls::ones({2}));
  const Remembering copy = ls::clone(net);
  ASSERT_EQ(copy.seen->size(), 1U);
  copy.seen->front().fill_(5);
  EXPECT_EQ(copy.seen->front().to_vector<float>(), (std::vector<float>{5, 5}));
  EXPECT_EQ(net.seen->front().to_vector<float>(), (std::vector<float>{1, 1}));
}

TEST(PerReplica, WithoutAMergeTheFirstReplicasValueCounts) {
  struct Last {
    ls::PerReplica<double> value{-1};
    ls::Tensor forward(const ls::Tensor& x) const {
      *value = x.device().index;
      return x;
    }
  };
  ls::DataParallel model{Last{}, {"cpu:2", "cpu:1"}};
  EXPECT_EQ(model.module().value.merged(), -1);
  model(ls::ones({2}));
  EXPECT_EQ(model.module().value.values(), (std::vector<double>{2, 1}));
  EXPECT_EQ(model.module().value.merged(), 2);
}

TEST(PerReplica, NestedReplicasHaveValuesOfTheirOwn) {
  struct Inner {
    ls::PerReplica<int> calls{0, std::plus<>{}};
    ls::Tensor forward(const ls::Tensor& x) const {
      for (int i = 0; i < 1000; ++i) ++*calls;
      return x;
    }
  };
  struct Outer {
    ls::DataParallel<Inner> inner{Inner{}, first_devices(2)};
    ls::Tensor forward(const ls::Tensor& x) { return inner(x); }
  };
  ls::DataParallel model{Outer{}, first_devices(2)};
  for (int step = 0; step < 20; ++step) model(ls::ones({4, 1}));
  const auto& counts = model.module().inner.module().calls;
  EXPECT_EQ(counts.values(), (std::vector<int>{20000, 20000, 20000, 20000}));
  EXPECT_EQ(counts.merged(), 80000);
}

TEST(PerReplica, ResetReachesReplicasThatThereAre) {
  std::vector<Counting> replicas = ls::replicate(
      [] {
        Counting module;
        ls::to(module, "cpu:0");
        return module;
      }(),
      first_devices(2));
  *replicas[1].rows = 5;
  replicas[0].rows.reset();
  EXPECT_EQ(*replicas[1].rows, 0);
  *replicas[1].rows += 4;
  EXPECT_EQ(replicas[0].rows.merged(), 4);
  const auto moved = std::move(replicas[1]);
  EXPECT_EQ(*replicas[1].rows, *moved.rows);
}

struct Accumulating {
  ls::PerReplica<ls::Tensor> seen{ls::zeros({1}),
                                  [](const ls::Tensor& a, const ls::Tensor& b) { return a + b; }};
  ls::Tensor forward(const ls::Tensor& x) const {
    seen->add_(static_cast<double>(x.size(0)));
    return x;
  }
};

TEST(PerReplica, TensorsBeginOnMemoryOfTheirOwn) {
  const ls::DataParallel model{Accumulating{}, first_devices(4)};
  const ls::PerReplica<ls::Tensor>& seen = model.module().seen;
  for (const double times : {1.0, 2.0, 1.0}) {
    model(ls::ones({8}));
    for (const ls::Tensor& value : seen.values()) EXPECT_EQ(value.item(), 2 * times);
    EXPECT_EQ(seen.merged().item(), 8 * times);
    if (times == 2) seen.reset();
  }
}

struct WithoutInitialValue {
  ls::PerReplica<int> rows;
};
TEST(PerReplica, BeginsWithTheDefaultValueIfThereIsNoOther) {
  EXPECT_EQ(*WithoutInitialValue{}.rows, 0);
}

struct CountsCallbacks {
  int callbacks = 0;
  void data_parallel_replicate(const std::shared_ptr<ls::CallbackContext>&, std::size_t) {
    ++callbacks;
  }
  ls::Tensor forward(const ls::Tensor& x) const { return x + callbacks; }
};

TEST(ReplicationCallback, ReachesModulesWithinWrappers) {
  const auto hook = [](const auto&, const auto&, const auto&) {};
  const ls::Tensor x = ls::zeros({2});
  const std::vector<float> once = {1, 1};
  ls::DataParallel plain{CountsCallbacks{}, first_devices(2)};
  EXPECT_EQ(plain(x).to_vector<float>(), once);
  ls::DataParallel hooked{ls::register_forward_hook(CountsCallbacks{}, hook), first_devices(2)};
  EXPECT_EQ(hooked(x).to_vector<float>(), once);
  ls::DataParallel nested{ls::DataParallel{CountsCallbacks{}, std::nullopt}, first_devices(2)};
  EXPECT_EQ(nested(x).to_vector<float>(), once);
  ls::DataParallel both{ls::register_forward_hook(ls::DataParallel{L0{}, first_devices(2)}, hook),
                        first_devices(2)};
  EXPECT_EQ(both(x5()).to_vector<double>(), ls::testing::y5());
}

}  // namespace replication_callback_test
