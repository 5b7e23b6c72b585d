// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/distributed.hpp>

#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/nn/batch_norm.hpp>
#include <lockstep/nn/lazy_linear.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/linear.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include "parallel/layers.hpp"
#include "support/devices.hpp"
#include "support/expect_error.hpp"
#include "support/warnings.hpp"
#include "support/within.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep {
namespace distributed_test {

using distributed::ProcessGroup;
using testing::CaughtWarnings;
using testing::f64;
using testing::first_devices;
using testing::throws;
using testing::Within;
using Values = std::vector<double>;

constexpr TensorOptions kF64{.dtype = Dtype::f64};

// 2 → 1 without bias: the module of the reference's cases.
struct Affine {
  Parameter weight{f64({1, 2}, {1, 2})};
  Tensor forward(const Tensor& x) const { return linear(x, weight, {}); }
};

// Rank r's argument.
Tensor input(const ProcessGroup& group) { return full({1, 2}, group.rank() + 1, kF64); }

Values grad_of(const Tensor& parameter) {
  const Tensor grad = parameter.grad();
  return grad.defined() ? grad.to_vector<double>() : Values{};
}

// What `body(group)` returns on each of the first host devices.
template <class Body>
auto on_ranks(std::size_t count, Body body) {
  std::vector<decltype(body(std::declval<const ProcessGroup&>()))> results(count);
  distributed::run(first_devices(count), [&](const ProcessGroup& group) {
    results[static_cast<std::size_t>(group.rank())] = body(group);
  });
  return results;
}

// The message of the E that `body(group)` throws, on each rank.
template <class E, class Body>
std::vector<std::string> messages(std::size_t count, Body body) {
  return on_ranks(count, [&](const ProcessGroup& group) -> std::string {
    try {
      body(group);
    } catch (const E& error) {
      return error.what();
    }
    return "no exception";
  });
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(DistributedDataParallel, DD01OneStep) {
  const auto grads = on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{Affine{}, group};
    model(input(group)).sum().backward();
    return grad_of(model.module().weight);
  });
  EXPECT_EQ(grads, (std::vector<Values>(2, {1.5, 1.5})));
}

TEST(DistributedDataParallel, DD01OnTheDefaultGroup) {
  const auto grads = on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{Affine{}};
    model(input(group)).sum().backward();
    return grad_of(model.module().weight);
  });
  EXPECT_EQ(grads, (std::vector<Values>(2, {1.5, 1.5})));
}

TEST(DistributedDataParallel, DD02NoSyncThenANormalStep) {
  on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{Affine{}, group};
    const double r = group.rank();
    {
      const auto guard = model.no_sync();
      model(input(group)).sum().backward();
      EXPECT_EQ(grad_of(model.module().weight), (Values{r + 1, r + 1}));
    }
    model(input(group)).sum().backward();
    EXPECT_EQ(grad_of(model.module().weight), (Values{3, 3}));
    return 0;
  });
}

TEST(DistributedDataParallel, DD02WhatCountsIsWhereBackwardIsCalled) {
  on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{Affine{}, group};
    const double r = group.rank();
    Tensor inside;
    {
      const auto guard = model.no_sync();
      inside = model(input(group)).sum();
    }
    const Tensor outside = model(input(group)).sum();
    {
      const auto guard = model.no_sync();
      outside.backward();
      EXPECT_EQ(grad_of(model.module().weight), (Values{r + 1, r + 1}));
    }
    inside.backward();
    EXPECT_EQ(grad_of(model.module().weight), (Values{3, 3}));
    return 0;
  });
}

TEST(DistributedDataParallel, DD02NoSyncNests) {
  const auto grads = on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{Affine{}, group};
    const auto outer = model.no_sync();
    { const auto inner = model.no_sync(); }
    model(input(group)).sum().backward();
    return grad_of(model.module().weight);
  });
  EXPECT_EQ(grads, (std::vector<Values>{{1, 1}, {2, 2}}));
}

TEST(DistributedDataParallel, DD04ASecondBackwardIsSynchronised) {
  const auto grads = on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{Affine{}, group};
    const Tensor loss = model(input(group)).sum();
    loss.backward({}, true);
    loss.backward();
    return grad_of(model.module().weight);
  });
  EXPECT_EQ(grads, (std::vector<Values>(2, {3, 3})));
}

TEST(DistributedDataParallel, DD05OtherShapesAreToldToAllRanksByName) {
  const auto texts = messages<ModuleError>(2, [](const ProcessGroup& group) {
    struct Net {
      Parameter bias;
      Parameter weight;
      Tensor forward(const Tensor& x) const { return linear(x, weight, bias); }
    };
    const std::int64_t outputs = group.rank() == 0 ? 2 : 3;
    DistributedDataParallel model{Net{Parameter(zeros({1})), Parameter(zeros({outputs, 2}))},
                                  group};
  });
  for (const std::string& text : texts) {
    EXPECT_TRUE(contains(text,
                         "parameter 1, \"weight\", is of shape [2, 2], strides [2, 1] and f32"
                         " on rank 0, but of shape [3, 2], strides [2, 1] and f32 on rank 1"))
        << text;
  }
}

struct Bag {
  std::vector<Parameter> items;
  Tensor forward(const Tensor& x) const { return x; }
};

TEST(DistributedDataParallel, DD06AnExtraParameter) {
  const auto texts = messages<ModuleError>(2, [](const ProcessGroup& group) {
    Bag bag;
    for (int i = 0; i <= group.rank(); ++i) bag.items.emplace_back(zeros({1}));
    DistributedDataParallel model{bag, group};
  });
  for (const std::string& text : texts) {
    EXPECT_EQ(text,
              "DDP expects same model across all ranks, but Rank 0 has 1 params, while rank 1 has "
              "inconsistent 2 params.");
  }
}

TEST(DistributedDataParallel, DD07NothingToTrain) {
  const auto texts = messages<ModuleError>(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{Bag{{Parameter(zeros({1}), false)}}, group};
  });
  for (const std::string& text : texts) {
    EXPECT_TRUE(contains(text,
                         "not needed when a module doesn't have any parameter that requires a "
                         "gradient."))
        << text;
  }
}

// Two layers, of which the second is used if `both` says so.
struct TwoLayers {
  Parameter first{f64({1, 2}, {1, 2})};
  Parameter second{f64({3, 4}, {1, 2})};
  Tensor forward(const Tensor& x, bool both) const {
    const Tensor y = linear(x, first, {});
    return both ? y + linear(x, second, {}) : y;
  }
};

TEST(DistributedDataParallel, DD08AnUnusedParameterIsNamedAtTheEndOfTheBackward) {
  on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{TwoLayers{}, group};
    const Tensor loss = model(input(group), false).sum();
    const std::string expected = "Parameter indices which did not receive grad for rank " +
                                 std::to_string(group.rank()) + ": 1 (second)";
    EXPECT_TRUE(throws<AutogradError>([&] { loss.backward(); }, expected));
    EXPECT_EQ(grad_of(model.module().first), (Values{1.5, 1.5}));
    EXPECT_EQ(grad_of(model.module().second), Values());
    EXPECT_TRUE(throws<AutogradError>([&] { model(input(group), true); }, expected));
    return 0;
  });
}

TEST(DistributedDataParallel, DD08AllRanksAreToldOfOneThatMissesAParameterAtFirst) {
  const auto texts = messages<AutogradError>(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{TwoLayers{}, group};
    model(input(group), group.rank() == 0).sum().backward();
  });
  EXPECT_TRUE(contains(texts[0],
                       "All got a gradient on this rank, 0, but not on all others: parameter 1 "
                       "(second) got none on rank 1. If that is meant"))
      << texts[0];
  EXPECT_TRUE(contains(texts[1], "for rank 1: 1 (second)")) << texts[1];
}

TEST(DistributedDataParallel, DD08ALaterMissEndsAllRanksAndHoldsNoneUp) {
  EXPECT_TRUE(throws<AutogradError>(
      [] {
        distributed::run(first_devices(2), [](const ProcessGroup& group) {
          DistributedDataParallel model{TwoLayers{}, group};
          for (int step = 0; step < 3; ++step) {
            model(input(group), group.rank() == 0 || step < 1).sum().backward();
          }
        });
      },
      "rank 1 on device cpu:1", "for rank 1: 1 (second)"));
}

// Its gradient would be each rank's own, and pass for one of an unused parameter.
TEST(DistributedDataParallel, AParameterThatWasReplacedAfterwardsIsNamedInForward) {
  const std::vector<DistributedDataParallelOptions> choices{
      {}, {.find_unused_parameters = true}, {.static_graph = true}};
  for (const DistributedDataParallelOptions& options : choices) {
    const auto errors = messages<ModuleError>(2, [&options](const ProcessGroup& group) {
      DistributedDataParallel model{TwoLayers{}, group, options};
      const Parameter second = model.module().second;
      model.module().second = Parameter(second.detach().clone());
      {
        const NoGradGuard guard;  // weights may be exchanged to evaluate others
        EXPECT_NO_THROW((void)model(input(group), true));
      }
      model.module().second = second;
      EXPECT_NO_THROW((void)model(input(group), true));
      model.module().second = Parameter(second.detach().clone());
      (void)model(input(group), true);
    });
    for (const std::string& error : errors) {
      EXPECT_TRUE(contains(error, "parameter \"second\" was replaced")) << error;
    }
  }
}

TEST(DistributedDataParallel, AParameterThatIsUnfrozenAfterwardsIsNamedInForward) {
  const auto errors = messages<ModuleError>(2, [](const ProcessGroup& group) {
    TwoLayers layers;
    layers.second.requires_grad_(false);
    DistributedDataParallel model{std::move(layers), group};
    model(input(group), true).sum().backward();
    model.module().second.requires_grad_();
    model(input(group), true).sum().backward();
  });
  for (const std::string& error : errors) {
    EXPECT_TRUE(contains(error, "parameter \"second\" was replaced, added or unfrozen")) << error;
  }
}

// Rank 1 freezes the second layer between forward and backward; its part of the mean is zero. In
// the first pass, after which the buckets are made anew, and in another one.
TEST(DistributedDataParallel, AParameterThatWasFrozenAfterForwardContributesNothing) {
  for (const bool find_unused : {false, true}) {
    on_ranks(2, [find_unused](const ProcessGroup& group) {
      DistributedDataParallel model{TwoLayers{}, group, {.find_unused_parameters = find_unused}};
      const Parameter second = model.module().second;
      for (int step = 0; step < 3; ++step) {
        const Tensor loss = model(input(group), true).sum();
        if (group.rank() == 1 && step < 2) second.requires_grad_(false);
        loss.backward();
        EXPECT_EQ(grad_of(model.module().first), (Values{1.5, 1.5}));
        EXPECT_EQ(grad_of(second), step < 2 ? (Values{0.5, 0.5}) : (Values{1.5, 1.5}));
        second.requires_grad_();
        model.zero_grad();
      }
      return 0;
    });
  }
}

// Whether others go on with it is told only with find_unused_parameters.
TEST(DistributedDataParallel, AParameterThatAllHaveFrozenAfterForwardGetsZerosUnlessItMayBeUnused) {
  for (const bool find_unused : {false, true}) {
    on_ranks(2, [find_unused](const ProcessGroup& group) {
      DistributedDataParallel model{TwoLayers{}, group, {.find_unused_parameters = find_unused}};
      const Parameter second = model.module().second;
      model(input(group), true).sum().backward();
      for (const bool cleared : {false, true}) {
        if (cleared) model.zero_grad();
        const Tensor loss = model(input(group), true).sum();
        second.requires_grad_(false);
        loss.backward();
        second.requires_grad_();
        const Values zeros = find_unused ? Values() : Values{0, 0};
        EXPECT_EQ(grad_of(second), cleared ? zeros : (Values{1.5, 1.5}));
      }
      return 0;
    });
  }
}

TEST(DistributedDataParallel, AGradientAfterWhichAHookFreezesItsParameterIsReduced) {
  for (const bool find_unused : {false, true}) {
    const auto grads = on_ranks(2, [find_unused](const ProcessGroup& group) {
      TwoLayers layers;
      layers.second.register_post_accumulate_grad_hook(
          [](const Tensor& parameter) { parameter.requires_grad_(false); });
      DistributedDataParallel model{
          std::move(layers), group, {.find_unused_parameters = find_unused}};
      model(input(group), true).sum().backward();
      return grad_of(model.module().second);
    });
    EXPECT_EQ(grads, (std::vector<Values>(2, {1.5, 1.5})));
  }
}

TEST(DistributedDataParallel, AFrozenParameterKeepsWhatNoSyncHasAccumulated) {
  for (const bool find_unused : {false, true}) {
    const auto grads = on_ranks(2, [find_unused](const ProcessGroup& group) {
      DistributedDataParallel model{TwoLayers{}, group, {.find_unused_parameters = find_unused}};
      const Parameter second = model.module().second;
      {
        const auto guard = model.no_sync();
        model(input(group), true).sum().backward();
      }
      const Tensor loss = model(input(group), true).sum();
      second.requires_grad_(false);
      loss.backward();
      return grad_of(second);
    });
    EXPECT_EQ(grads, (std::vector<Values>(2, {1.5, 1.5})));
  }
}

TEST(DistributedDataParallel, DD09UnusedOnAllRanksStaysAbsentUsedOnOneIsPresentOnAll) {
  on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{TwoLayers{}, group, {.find_unused_parameters = true}};
    model(input(group), false).sum().backward();
    EXPECT_EQ(grad_of(model.module().first), (Values{1.5, 1.5}));
    EXPECT_EQ(grad_of(model.module().second), Values());
    model.zero_grad();
    model(input(group), group.rank() == 0).sum().backward();
    EXPECT_EQ(grad_of(model.module().first), (Values{1.5, 1.5}));
    EXPECT_EQ(grad_of(model.module().second), (Values{0.5, 0.5}));
    EXPECT_EQ(model.logging_data().unused_parameter_size, group.rank() == 0 ? 0u : 16u);
    EXPECT_FALSE(model.logging_data().can_set_static_graph && group.rank() == 0);
    return 0;
  });
}

TEST(DistributedDataParallel, ItIsSaidWhetherEveryPassUsedTheSameParameters) {
  const CaughtWarnings warnings;
  on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{TwoLayers{}, group, {.find_unused_parameters = true}};
    for (const bool with_second : {true, true, false, true}) {
      model(input(group), with_second).sum().backward();
    }
    EXPECT_FALSE(model.logging_data().can_set_static_graph);
    DistributedDataParallel always{TwoLayers{}, group, {.find_unused_parameters = true}};
    for (int pass = 0; pass < 3; ++pass) always(input(group), false).sum().backward();
    EXPECT_TRUE(always.logging_data().can_set_static_graph);
    return 0;
  });
  EXPECT_EQ(warnings.count(), 1);  // that the search was in vain, by the first rank of the first
}

TEST(DistributedDataParallel, TheSearchIsNotInVainWhereOnlyAnotherRankMissesAParameter) {
  const CaughtWarnings warnings;
  on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{TwoLayers{}, group, {.find_unused_parameters = true}};
    model(input(group), group.rank() == 0).sum().backward();
    return 0;
  });
  EXPECT_EQ(warnings.count(), 0);
}

TEST(DistributedDataParallel, DD09WhatNobodyUsesStaysWhatItWas) {
  on_ranks(3, [](const ProcessGroup& group) {
    DistributedDataParallel model{TwoLayers{}, group, {.find_unused_parameters = true}};
    model(input(group), true).sum().backward();
    const double mine = 0.1 + group.rank();  // as the user may have made it
    model.module().second.grad().fill_(mine);
    for (int step = 0; step < 2; ++step) {
      model(input(group), false).sum().backward();
      EXPECT_EQ(grad_of(model.module().second), (Values{mine, mine}));
    }
    return 0;
  });
}

TEST(DistributedDataParallel, DD09WhatNoSyncHasAccumulatedIsUsed) {
  const auto grads = on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{TwoLayers{}, group, {.find_unused_parameters = true}};
    {
      const auto guard = model.no_sync();
      model(input(group), group.rank() == 1).sum().backward();
    }
    model(input(group), false).sum().backward();
    return grad_of(model.module().second);
  });
  EXPECT_EQ(grads, (std::vector<Values>(2, {1, 1})));
}

struct Normed {
  nn::BatchNorm1d norm{1, {.affine = true, .dtype = Dtype::f64}};
  Tensor forward(const Tensor& x) { return norm.forward(x); }
};

TEST(DistributedDataParallel, DD10Rank0sBuffersAreBroadcastBeforeEachForward) {
  on_ranks(2, [](const ProcessGroup& group) {
    const double r = group.rank();
    DistributedDataParallel model{Normed{}, group};
    const Tensor& mean = model.module().norm.running_mean;
    const Tensor x = full({4, 1}, r, kF64);
    const auto reset = [&] { mean.fill_(10 + r); };
    reset();
    (void)model(x);
    EXPECT_NEAR(mean.item(), 9.0 + 0.1 * r, 1e-12);
    EXPECT_EQ(model.module().norm.num_batches_tracked.item<std::int64_t>(), 1);
    model.eval();
    reset();
    (void)model(x);
    EXPECT_EQ(mean.item(), 10);
    reset();
    {
      const auto guard = model.no_sync();
      (void)model(x);
    }
    EXPECT_EQ(mean.item(), 10 + r);
    return 0;
  });
}

TEST(DistributedDataParallel, DD10ButNotWhereTheOptionSaysNo) {
  on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{Normed{}, group, {.forward_sync_buffers = false}};
    model.eval();
    const Tensor& mean = model.module().norm.running_mean;
    mean.fill_(10.0 + group.rank());
    (void)model(zeros({4, 1}, kF64));
    EXPECT_EQ(mean.item(), 10.0 + group.rank());
    return 0;
  });
}

// The second one's broadcast changes what the first one has normalised with.
TEST(DistributedDataParallel, DD10TwoForwardsInEvaluationBeforeOneBackward) {
  struct Net {
    nn::BatchNorm1d norm{1, {.dtype = Dtype::f64}};
    nn::BatchNorm1d other{1, {.affine = false, .dtype = Dtype::f64}};
    Tensor forward(const Tensor& x) { return other.forward(norm.forward(x)); }
  };
  on_ranks(3, [](const ProcessGroup& group) {
    DistributedDataParallel model{Net{}, group};
    model.eval();
    model.module().norm.eps = model.module().other.eps = 0;
    const double r = group.rank();
    for (int step = 0; step < 2; ++step) {
      model.zero_grad();
      const Tensor x = full({1, 1}, r + 1, kF64).requires_grad_();
      const Tensor first = model(x);
      {
        const NoGradGuard guard;
        model.module().norm.running_mean.fill_(r);  // rank 0's counts: 0
      }
      const Tensor loss = (first + model(x)).sum();
      {
        const NoGradGuard guard;
        model.module().norm.running_mean.fill_(5);
        model.module().norm.running_var.fill_(7);
      }
      loss.backward();
      EXPECT_EQ(grad_of(x), Values{2});
      EXPECT_EQ(grad_of(model.module().norm.weight), Values{4});  // twice the mean of 1, 2, 3
      model.module().norm.running_mean.zero_();
      model.module().norm.running_var.fill_(1);
    }
    return 0;
  });
}

TEST(DistributedDataParallel, UninitializedParametersAreNamed) {
  const auto texts = messages<ModuleError>(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{nn::LazyLinear{3}, group};
  });
  for (const std::string& text : texts) {
    EXPECT_TRUE(contains(text, "can't be used with `DistributedDataParallel`. Run a dummy"))
        << text;
  }
}

struct Named {
  Parameter a;
  Parameter b;
  Tensor forward(const Tensor& x) const { return x; }
};

TEST(DistributedDataParallel, DD21AnotherOrderOfEqualShapesIsAnError) {
  const auto texts = messages<ModuleError>(2, [](const ProcessGroup& group) {
    struct Swapped {
      Parameter b;
      Parameter a;
      Tensor forward(const Tensor& x) const { return x; }
    };
    const Parameter one(zeros({1}));
    const Parameter two(zeros({1}));
    if (group.rank() == 0) {
      DistributedDataParallel model{Named{one, two}, group};
    } else {
      DistributedDataParallel model{Swapped{one, two}, group};
    }
  });
  for (const std::string& text : texts) {
    EXPECT_TRUE(contains(text, "parameter 0 is \"a\" on rank 0, but \"b\" on rank 1")) << text;
  }
}

TEST(DistributedDataParallel, DD22AnotherDtypeIsAnErrorAtConstruction) {
  const auto texts = messages<ModuleError>(2, [](const ProcessGroup& group) {
    const Dtype dtype = group.rank() == 0 ? Dtype::f32 : Dtype::f64;
    DistributedDataParallel model{Bag{{Parameter(zeros({3}, {.dtype = dtype}))}}, group};
  });
  for (const std::string& text : texts) {
    EXPECT_TRUE(contains(text, "\"items.0\"")) << text;
    EXPECT_TRUE(contains(text, "f32 on rank 0")) << text;
    EXPECT_TRUE(contains(text, "f64 on rank 1")) << text;
  }
}

TEST(DistributedDataParallel, ModelsAreComparedInAllThatCounts) {
  const auto texts_of = [](auto make) {
    return messages<ModuleError>(3, [&](const ProcessGroup& group) { make(group); });
  };
  const auto expect = [](const std::vector<std::string>& texts, const std::string& part) {
    for (const std::string& text : texts) EXPECT_TRUE(contains(text, part)) << text;
  };
  expect(texts_of([](const ProcessGroup& group) {
           DistributedDataParallel model{
               Named{Parameter(zeros({1})), Parameter(zeros({1}), group.rank() != 2)}, group};
         }),
         "but of shape [1], strides [1] and f32, without gradient on rank 2");
  expect(texts_of([](const ProcessGroup& group) {
           const TensorOptions here{.device = group.device()};
           DistributedDataParallel model{
               Bag{{Parameter(group.rank() == 1 ? zeros({3, 2}, here).t() : zeros({2, 3}, here))}},
               group};
         }),
         "strides [1, 2] and f32 on rank 1");
  expect(texts_of([](const ProcessGroup& group) {
           DistributedDataParallel model{Affine{}, group, {.static_graph = group.rank() == 1}};
         }),
         "option 5, \"static_graph\", is false on rank 0, but true on rank 1");
  struct Buffered {
    Parameter weight{zeros({1})};
    std::vector<Buffer> buffers;
    Tensor forward(const Tensor& x) const { return x; }
  };
  expect(texts_of([](const ProcessGroup& group) {
           Buffered module;
           if (group.rank() == 2) module.buffers.emplace_back(zeros({1}));
           DistributedDataParallel model{module, group};
         }),
         "Rank 0 has 0 buffers, while rank 2 has inconsistent 1 buffers.");
  expect(
      texts_of([](const ProcessGroup& group) {
        Buffered module;
        module.buffers.emplace_back(zeros({group.rank() == 2 ? 3 : 1}));
        DistributedDataParallel model{module, group};
      }),
      "buffer 0, \"buffers.0\", is of shape [1], strides [1] and f32 on rank 0, but of shape [3]");
}

TEST(DistributedDataParallel, Rank0sValuesBecomeEverybodysAtConstruction) {
  struct Stateful {
    Parameter weight;
    Parameter frozen;
    Buffer count;
    Tensor forward(const Tensor& x) const { return x; }
  };
  for (const bool sync : {true, false}) {
    const auto values = on_ranks(3, [sync](const ProcessGroup& group) {
      const double r = group.rank();
      DistributedDataParallel model{
          Stateful{Parameter(f64({r, r}, {2})), Parameter(f64({10 + r}, {1}), false),
                   Buffer(f64({20 + r}, {1}))},
          group,
          {.init_sync = sync}};
      const Stateful& module = model.module();
      return Values{module.weight.to_vector<double>()[1], module.frozen.item(),
                    module.count.item()};
    });
    EXPECT_EQ(values[0], (Values{0, 10, 20}));
    EXPECT_EQ(values[2], sync ? (Values{0, 10, 20}) : (Values{2, 12, 22}));
  }
}

// They are rounded up to the same number of cache lines, and go together.
TEST(DistributedDataParallel, BuffersThatHaveGrownToOtherSizesAreAnErrorOnAllRanks) {
  struct Masked {
    Parameter weight{zeros({1})};
    Buffer mask{zeros({1})};
    Buffer count{zeros({1})};
    Tensor forward(const Tensor& x) const { return x * weight; }
  };
  const auto grown = [](const ProcessGroup& group, std::int64_t size) {
    const TensorOptions here{.device = group.device()};
    Masked module;
    to(module, group.device());
    DistributedDataParallel model{module, group};
    (void)model(ones({1}, here));
    model.module().mask = Buffer(full({size}, group.rank(), here));
    (void)model(ones({1}, here));
    return model.module().mask.to_vector<float>();
  };
  for (const auto& mask : on_ranks(2, [&](auto& group) { return grown(group, 5); })) {
    EXPECT_EQ(mask, std::vector<float>(5, 0));
  }
  const auto texts = messages<ValueError>(
      2, [&](const ProcessGroup& group) { (void)grown(group, group.rank() == 0 ? 3 : 5); });
  for (const std::string& text : texts) {
    EXPECT_TRUE(contains(text, "collectives do not match")) << text;
  }
}

TEST(DistributedDataParallel, AHookThatTakesTheGradientAwayIsNamed) {
  for (const bool before : {true, false}) {
    const auto texts = messages<ModuleError>(2, [before](const ProcessGroup& group) {
      TwoLayers layers;
      const auto clear = [](const Tensor& parameter) { parameter.set_grad({}); };
      const auto handle = before ? layers.second.register_post_accumulate_grad_hook(clear)
                                 : lockstep::RemovableHandle();
      DistributedDataParallel model{layers, group};
      const auto later = before ? lockstep::RemovableHandle()
                                : layers.second.register_post_accumulate_grad_hook(clear);
      model(input(group), true).sum().backward();
    });
    for (const std::string& text : texts) {
      EXPECT_TRUE(contains(text, "1 (second) was taken away within backward")) << text;
    }
  }
}

TEST(DistributedDataParallel, DD23AStaticGraphMustNotChange) {
  for (const bool more : {true, false}) {
    const auto texts = messages<AutogradError>(2, [more](const ProcessGroup& group) {
      DistributedDataParallel model{TwoLayers{}, group, {.static_graph = true}};
      model(input(group), !more).sum().backward();
      model(input(group), !more).sum().backward();
      model(input(group), more).sum().backward();
    });
    for (const std::string& text : texts) {
      EXPECT_TRUE(contains(text, "Your training graph has changed in this iteration")) << text;
      EXPECT_TRUE(contains(text, "1 (second)")) << text;
    }
  }
}

// What only passes within no_sync use would keep each rank's own gradient.
TEST(DistributedDataParallel, DD23AStaticGraphMustNotChangeWithinNoSyncEither) {
  const auto texts = messages<AutogradError>(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{TwoLayers{}, group, {.static_graph = true}};
    model(input(group), false).sum().backward();
    const auto guard = model.no_sync();
    model(input(group), false).sum().backward();
    model(input(group), true).sum().backward();
  });
  for (const std::string& text : texts) {
    EXPECT_TRUE(contains(text, "Your training graph has changed in this iteration")) << text;
    EXPECT_TRUE(contains(text, "1 (second)")) << text;
  }
}

TEST(DistributedDataParallel, DD23AStaticGraphReducesWhatNoSyncHasAccumulatedBeforeItsFirstPass) {
  on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{TwoLayers{}, group, {.static_graph = true}};
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      {
        const auto guard = model.no_sync();
        model(input(group), true).sum().backward();
      }
      model(input(group), false).sum().backward();
      EXPECT_EQ(grad_of(model.module().first), (Values{3, 3}));
      EXPECT_EQ(grad_of(model.module().second), (Values{1.5, 1.5}));
    }
    return 0;
  });
}

TEST(DistributedDataParallel, DD23AStaticGraphDoesNotReduceWhatNobodyUses) {
  on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{TwoLayers{}, group, {.static_graph = true}};
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      model(input(group), false).sum().backward();
      EXPECT_EQ(grad_of(model.module().first), (Values{1.5, 1.5}));
      EXPECT_EQ(grad_of(model.module().second), Values());
    }
    EXPECT_EQ(model.logging_data().initial_bucket_sizes, (std::vector<std::size_t>{32}));
    EXPECT_EQ(model.logging_data().rebuilt_bucket_sizes, (std::vector<std::size_t>{16}));
    return 0;
  });
}

TEST(DistributedDataParallel, DD23RanksMayUseOtherPartsOfAStaticGraph) {
  on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{TwoLayers{}, group, {.static_graph = true}};
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      model(input(group), group.rank() == 1).sum().backward();
      EXPECT_EQ(grad_of(model.module().second), (Values{1, 1}));
    }
    return 0;
  });
}

TEST(DistributedDataParallel, DD24GradientsAreViewsOfTheBuckets) {
  on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{TwoLayers{}, group};
    for (int step = 0; step < 2; ++step) model(input(group), true).sum().backward();
    const Tensor first = model.module().first.grad();
    const Tensor second = model.module().second.grad();
    EXPECT_EQ(first.impl()->storage, second.impl()->storage);
    EXPECT_NE(first.impl()->offset, second.impl()->offset);
    EXPECT_EQ(first.sizes(), model.module().first.sizes());
    return 0;
  });
}

TEST(DistributedDataParallel, DD25TwoForwardsOneBackwardOfTheSum) {
  on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{Affine{}, group};
    const Tensor x = ones({1, 2}, kF64);
    (model(x).sum() + model(x).sum()).backward();
    EXPECT_EQ(grad_of(model.module().weight), (Values{2, 2}));
    return 0;
  });
}

TEST(DistributedDataParallel, AWorldOfOneLeavesGradientsAsTheyAre) {
  on_ranks(1, [](const ProcessGroup& group) {
    DistributedDataParallel model{Affine{}, group};
    model(f64({0.1, 0.3}, {1, 2})).sum().backward();
    EXPECT_EQ(grad_of(model.module().weight), (Values{0.1, 0.3}));
    return 0;
  });
}

TEST(DistributedDataParallel, TheModuleGoesToTheDeviceOfTheGroupAndArgumentsWithIt) {
  on_ranks(2, [](const ProcessGroup& group) {
    const Affine module;
    DistributedDataParallel model{module, group};
    EXPECT_EQ(model.device(), group.device());
    EXPECT_EQ(module.weight.device(), group.device());  // in place
    EXPECT_EQ(model(input(group)).device(), group.device());
    EXPECT_EQ(model.named_parameters()[0].name, "weight");
    return 0;
  });
}

TEST(DistributedDataParallel, ADeviceMayBeGiven) {
  on_ranks(2, [](const ProcessGroup& group) {
    const Device device = first_devices(8)[static_cast<std::size_t>(group.rank()) + 4];
    DistributedDataParallel model{Affine{}, group, {.device_ids = {device}}};
    EXPECT_EQ(model.device(), device);
    model(input(group)).sum().backward();
    EXPECT_EQ(grad_of(model.module().weight), (Values{1.5, 1.5}));
    DistributedDataParallel plain{Affine{}, group, {.device_ids = {Device()}}};
    EXPECT_EQ(plain.device(), Device());
    plain(input(group)).sum().backward();
    EXPECT_EQ(grad_of(plain.module().weight), (Values{1.5, 1.5}));
    return 0;
  });
  const auto devices = first_devices(2);
  const auto make = [&](const DistributedDataParallelOptions& options, Device home) {
    return messages<Error>(1, [&](const ProcessGroup& group) {
      Affine module;
      to(module, home);
      DistributedDataParallel model{module, group, options};
    })[0];
  };
  EXPECT_TRUE(contains(make({.device_ids = devices}, {}),
                       "device_ids can only be None or contain a single element"));
  EXPECT_TRUE(contains(make({.device_ids = {devices[0]}}, devices[1]), "\"weight\""));
  EXPECT_TRUE(contains(make({.device_ids = {Device("cpu:99")}}, {}), "cpu:99"));
}

TEST(DistributedDataParallel, AnyArgumentsAndResults) {
  struct Net {
    Parameter weight{f64({2}, {1})};
    auto forward(const std::vector<Tensor>& list, const std::string& label) const {
      return std::pair(list[0] * weight, label + "!");
    }
  };
  on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{Net{}, group};
    const auto [tensor, label] = model(std::vector<Tensor>{f64({3}, {1})}, std::string("x"));
    EXPECT_EQ(tensor.device(), group.device());
    EXPECT_EQ(label, "x!");
    tensor.backward();
    EXPECT_EQ(grad_of(model.module().weight), (Values{3}));
    return 0;
  });
}

TEST(DistributedDataParallel, DtypesAndFrozenParametersSideBySide) {
  struct Mixed {
    Parameter narrow{full({2}, 1)};
    Parameter frozen{full({2}, 5), false};
    Parameter wide{full({2}, 1, kF64)};
    Tensor forward(double factor) const {
      return (narrow * frozen).to(Dtype::f64).sum() * factor + wide.sum() * factor;
    }
  };
  on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{Mixed{}, group};
    for (int step = 0; step < 2; ++step) {
      model.zero_grad();
      model(group.rank() + 1.0).backward();
      EXPECT_EQ(model.module().narrow.grad().to_vector<float>(), (std::vector<float>{7.5, 7.5}));
      EXPECT_EQ(grad_of(model.module().wide), (Values{1.5, 1.5}));
      EXPECT_FALSE(model.module().frozen.grad().defined());
    }
    EXPECT_EQ(model.logging_data().rebuilt_bucket_sizes.size(), 2u);
    return 0;
  });
}

TEST(DistributedDataParallel, AnExceptionOfOneRankEndsAll) {
  for (const bool in_forward : {true, false}) {
    EXPECT_TRUE(throws<std::out_of_range>(
        [in_forward] {
          distributed::run(first_devices(3), [in_forward](const ProcessGroup& group) {
            const auto fail = [&group] {
              if (group.rank() == 1) throw std::out_of_range("from rank 1");
            };
            DistributedDataParallel model{Normed{}, group};
            for (int step = 0; step < 3; ++step) {
              const Tensor y = model(ones({4, 1}, kF64));
              if (in_forward && step == 1) fail();
              const auto body = [&] {
                if (step == 1) fail();
              };
              apply(Within{body}, y).sum().backward();
            }
          });
        },
        "from rank 1"));
  }
}

TEST(DistributedDataParallel, AfterABackwardThatThrewItSaysSo) {
  on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{TwoLayers{}, group};
    const Tensor x = input(group).to(group.device()).requires_grad_();
    bool fail = true;
    const Tensor entry = apply(Within{[&] {
                                 if (fail) throw std::out_of_range("in backward");
                               }},
                               x);
    const Tensor loss = model(entry, true).sum();
    EXPECT_TRUE(throws<std::out_of_range>([&] { loss.backward({}, true); }, "in backward"));
    // The bucket was full and may be in flight still: nobody must touch it.
    EXPECT_EQ(grad_of(model.module().first), Values());
    fail = false;
    const std::string text = "Expected to have finished reduction in the prior iteration";
    EXPECT_TRUE(throws<AutogradError>([&] { loss.backward({}, true); }, text));
    EXPECT_TRUE(throws<AutogradError>([&] { model(x, true); }, text));
    return 0;
  });
}

TEST(DistributedDataParallel, CreateGraphIsAnErrorOutsideNoSync) {
  on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{Affine{}, group};
    {
      const auto guard = model.no_sync();
      model(input(group)).sum().backward({}, true, true);
    }
    model.zero_grad();
    const Tensor loss = model(input(group)).sum();
    EXPECT_TRUE(throws<AutogradError>([&] { loss.backward({}, true, true); }, "create_graph"));
    return 0;
  });
}

TEST(DistributedDataParallel, ASecondGradientInOnePassIsNamed) {
  on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{Affine{}, group};
    const Tensor x = input(group).to(group.device()).requires_grad_();
    const auto nested = [&] {
      const GradModeGuard records(true);
      linear(input(group).to(group.device()), model.module().weight, {}).sum().backward();
    };
    const Tensor loss = model(apply(Within{nested}, x)).sum();
    EXPECT_TRUE(throws<AutogradError>([&] { loss.backward(); },
                                      "Expected to mark a variable ready only once", "0 (weight)"));
    return 0;
  });
}

// Three layers, each with a graph of its own: the backward of the first one's calls that of the
// second one's, which calls that of the third one's. Nothing leads to the last parameter.
struct Nested {
  Parameter first{f64({1, 2}, {1, 2})};
  Parameter second{f64({3, 4}, {1, 2})};
  Parameter third{f64({5, 6}, {1, 2})};
  Parameter unused{f64({7, 8}, {1, 2})};

  Tensor forward(const Tensor& x) const {
    const Tensor innermost = linear(x, third, {}).sum();
    const Tensor inner = calling_backward_of(innermost, linear(x, second, {})).sum();
    return calling_backward_of(inner, linear(x, first, {}));
  }

  static Tensor calling_backward_of(const Tensor& loss, const Tensor& y) {
    return apply(Within{[loss] { loss.backward(); }}, y);
  }
};

TEST(DistributedDataParallel, WhatOnlyAnOuterBackwardReachesIsNotUnused) {
  on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{Nested{}, group, {.find_unused_parameters = true}};
    for (int step = 0; step < 2; ++step) {
      model.zero_grad();
      model(input(group)).sum().backward();
      for (const Parameter& used :
           {model.module().first, model.module().second, model.module().third}) {
        EXPECT_EQ(grad_of(used), (Values{1.5, 1.5}));
      }
      EXPECT_EQ(grad_of(model.module().unused), Values());
      EXPECT_EQ(model.logging_data().unused_parameter_size, 16u);
    }
    return 0;
  });
}

// Nobody knows of a pass that has not begun.
TEST(DistributedDataParallel, AGradientOfABackwardThatBeginsAfterTheFirstGradientIsNamed) {
  on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{TwoLayers{}, group, {.find_unused_parameters = true}};
    const Tensor later = model(input(group), true).sum();
    const Tensor x = input(group).to(group.device()).requires_grad_();
    const Tensor loss = model(apply(Within{[&] { later.backward(); }}, x), false).sum();
    EXPECT_TRUE(throws<AutogradError>([&] { loss.backward(); }, "1 (second)", "within its own?"));
    return 0;
  });
}

TEST(DistributedDataParallel, AParameterThatHasBecomeAnotherIsNamed) {
  on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{Affine{}, group};
    model(input(group)).sum().backward();
    model.zero_grad();
    model.module().weight.set_data(zeros({1, 3}, {.dtype = Dtype::f64, .device = group.device()}));
    const Tensor x = ones({1, 3}, kF64);
    EXPECT_NO_THROW(model(x).sum().backward());  // buckets are made anew after the first step
    model.zero_grad();
    model.module().weight.set_data(zeros({1, 4}, {.dtype = Dtype::f64, .device = group.device()}));
    EXPECT_TRUE(throws<ModuleError>(
        [&] {
          model(ones({1, 4}, kF64)).sum().backward();
        },
        "0 (weight)", "[1, 3]", "[1, 4]"));
    return 0;
  });
}

TEST(DistributedDataParallel, AModuleThatIsMovedAwayAndBackStaysSynchronised) {
  on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{Affine{}, group};
    model(input(group)).sum().backward();
    to(model.module(), Device());
    EXPECT_TRUE(throws<ModuleError>([&] { model(input(group)); }, "\"weight\""));
    to(model.module(), group.device());
    model(input(group)).sum().backward();
    EXPECT_EQ(grad_of(model.module().weight), (Values{3, 3}));
    return 0;
  });
}

TEST(DistributedDataParallel, AParameterBelongsToOneAtATime) {
  on_ranks(2, [](const ProcessGroup& group) {
    const Affine module;
    {
      DistributedDataParallel model{module, group};
      EXPECT_TRUE(throws<ModuleError>([&] { DistributedDataParallel again(module, group); },
                                      "\"weight\"", "another DistributedDataParallel"));
    }
    EXPECT_NO_THROW(DistributedDataParallel(module, group));
    return 0;
  });
}

TEST(DistributedDataParallel, OneThatIsRefusedLeavesAnothersModuleAsItIs) {
  const Device elsewhere = first_devices(1)[0];
  distributed::run({Device()}, [&](const ProcessGroup& group) {
    const Affine module;
    DistributedDataParallel model{module, group};
    EXPECT_TRUE(throws<ModuleError>(
        [&] { DistributedDataParallel again(module, group, {.device_ids = {elsewhere}}); },
        "\"weight\"", "another DistributedDataParallel"));
    EXPECT_EQ(module.weight.device(), Device());
    model(input(group)).sum().backward();
    EXPECT_EQ(grad_of(module.weight), (Values{1, 1}));
  });
}

TEST(DistributedDataParallel, RanksThatShareAModuleAreToldSo) {
  const Affine module;
  EXPECT_TRUE(throws<ModuleError>(
      [&] {
        distributed::run(first_devices(2), [&](const ProcessGroup& group) {
          DistributedDataParallel model{module, group};
        });
      },
      "\"weight\"", "another DistributedDataParallel"));
}

// Each device has a lane of its own: buckets of the two would come in any order.
TEST(DistributedDataParallel, ModelsOnTwoDevicesAreNotReducedInOneBackward) {
  const auto devices = first_devices(2);
  const auto told = messages<AutogradError>(2, [&](const ProcessGroup& group) {
    DistributedDataParallel a{Affine{}, group, {.device_ids = {devices[0]}}};
    DistributedDataParallel b{Affine{}, group, {.device_ids = {devices[1]}}};
    const Tensor x = input(group);
    a(x).sum().backward();
    b(x).sum().backward();
    EXPECT_EQ(grad_of(a.module().weight), (Values{1.5, 1.5}));
    EXPECT_EQ(grad_of(b.module().weight), (Values{1.5, 1.5}));
    (a(x).to(Device()) + b(x).to(Device())).sum().backward();
  });
  for (const std::string& message : told) {
    EXPECT_TRUE(contains(message, "one backward reaches a model on ")) << message;
    for (const Device device : devices) {
      EXPECT_TRUE(contains(message, detail::str(" on ", device))) << message;
    }
  }
}

TEST(DistributedDataParallel, OneThatHasBeenMovedFromSaysSo) {
  on_ranks(1, [](const ProcessGroup& group) {
    DistributedDataParallel from{Affine(), group};
    const DistributedDataParallel model = std::move(from);
    const auto says_so = [](const auto& use) {
      return throws<ModuleError>(use, "DistributedDataParallel", "moved from");
    };
    EXPECT_TRUE(says_so([&] { (void)from(input(group)); }));
    EXPECT_TRUE(says_so([&] { (void)from.no_sync(); }));
    EXPECT_TRUE(says_so([&] { (void)from.logging_data(); }));
    EXPECT_TRUE(says_so([&] { from.register_comm_hook({}); }));
    EXPECT_TRUE(says_so([&] { from.join([] {}); }));
    // Within its own join, too, where it is to stay.
    DistributedDataParallel joined{Affine(), group};
    EXPECT_NO_THROW(joined.join([&] { const auto other = std::move(joined); }));
    return 0;
  });
}

TEST(DistributedDataParallel, AMovedOneGoesOnAndADestroyedOneLeavesGradientsAlone) {
  on_ranks(2, [](const ProcessGroup& group) {
    const Affine module;
    std::optional<DistributedDataParallel<Affine>> model;
    {
      DistributedDataParallel first{module, group};
      model.emplace(std::move(first));
    }
    (*model)(input(group)).sum().backward();
    EXPECT_EQ(grad_of(module.weight), (Values{1.5, 1.5}));
    zero_grad(module);
    const Tensor loss = (*model)(input(group)).sum();
    model.reset();
    loss.backward();
    EXPECT_EQ(grad_of(module.weight), (Values(2, group.rank() + 1.0)));
    return 0;
  });
}

}  // namespace distributed_test
}  // namespace lockstep
