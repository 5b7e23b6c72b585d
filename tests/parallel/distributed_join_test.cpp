// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/join.hpp>

#include <lockstep/autograd/engine.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/nn/batch_norm.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/linear.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/distributed.hpp>
#include <lockstep/parallel/distributed_hooks.hpp>
#include <lockstep/tensor/creation.hpp>

#include "parallel/layers.hpp"
#include "support/devices.hpp"
#include "support/expect_error.hpp"
#include "support/warnings.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace lockstep {
namespace distributed_join_test {

using distributed::ProcessGroup;
using testing::f64;
using testing::first_devices;
using testing::throws;
using Values = std::vector<double>;
using Counts = std::vector<int>;

constexpr TensorOptions kF64{.dtype = Dtype::f64};

// 2 → 1 without bias: its gradient is the argument.
struct Affine {
  Parameter weight{f64({1, 2}, {1, 2})};
  Tensor forward(const Tensor& x) const { return linear(x, weight, {}); }
};

// Rank r's argument.
Tensor input(const ProcessGroup& group) { return full({1, 2}, group.rank() + 1, kF64); }

double grad_of(const Tensor& parameter) { return parameter.grad().to_vector<double>()[0]; }

// The gradient of each step for as many batches a rank as `counts` says.
Values expected_grads(const Counts& counts, bool by_all) {
  Values grads;
  for (int step = 0; step < *std::max_element(counts.begin(), counts.end()); ++step) {
    double sum = 0;
    int active = 0;
    for (std::size_t r = 0; r < counts.size(); ++r) {
      if (counts[r] <= step) continue;
      sum += static_cast<double>(r) + 1;
      ++active;
    }
    grads.push_back(sum / (by_all ? static_cast<double>(counts.size()) : active));
  }
  return grads;
}

const std::vector<Counts>& uneven() {
  static const std::vector<Counts> kinds = {{2},       {3, 3},    {1, 4},       {4, 1},
                                            {0, 2},    {2, 0},    {0, 0},       {2, 0, 3},
                                            {5, 2, 3}, {1, 1, 4}, {0, 3, 1, 2}, {3, 3, 3, 2}};
  return kinds;
}

TEST(Join, DD12GradientsAreThoseOfTheRanksThatHaveInputs) {
  for (const Counts& counts : uneven()) {
    for (const bool by_all : {true, false}) {
      SCOPED_TRACE(::testing::PrintToString(counts) + (by_all ? " by all" : " by active"));
      const Values expected = expected_grads(counts, by_all);
      double weight = 1;
      for (const double grad : expected) weight -= 0.5 * grad;
      distributed::run(first_devices(counts.size()), [&](const ProcessGroup& group) {
        DistributedDataParallel model{Affine{}, group};
        optim::SGD sgd{model.parameters(), {.lr = 0.5}};
        int step = 0;
        model.join(
            [&] {
              for (; step < counts[static_cast<std::size_t>(group.rank())]; ++step) {
                sgd.zero_grad();
                model(input(group)).sum().backward();
                EXPECT_NEAR(grad_of(model.module().weight),
                            expected[static_cast<std::size_t>(step)], 1e-12);
                sgd.step();
              }
            },
            {.divide_by_initial_world_size = by_all});
        EXPECT_EQ(step, counts[static_cast<std::size_t>(group.rank())]);
        EXPECT_NEAR(model.module().weight.to_vector<double>()[0], weight, 1e-12);
      });
    }
  }
}

// Ranks that are even again in a second epoch; and in a third, with other ones in front.
TEST(Join, DD12EpochAfterEpoch) {
  distributed::run(first_devices(3), [](const ProcessGroup& group) {
    DistributedDataParallel model{Affine{}, group, {.bucket_cap_mb = 0}};
    for (const Counts& counts : std::vector<Counts>{{0, 2, 1}, {2, 2, 2}, {3, 1, 2}}) {
      const Values expected = expected_grads(counts, true);
      model.join([&] {
        for (int step = 0; step < counts[static_cast<std::size_t>(group.rank())]; ++step) {
          model.zero_grad();
          model(input(group)).sum().backward();
          EXPECT_NEAR(grad_of(model.module().weight), expected[static_cast<std::size_t>(step)],
                      1e-12);
        }
      });
    }
    model.zero_grad();
    model(input(group)).sum().backward();  // and without
    EXPECT_EQ(grad_of(model.module().weight), 2);
    if (group.rank() == 1) (void)model(input(group));  // which nobody has to be told
  });
}

struct Normed {
  nn::BatchNorm1d norm{1, {.dtype = Dtype::f64}};
  Tensor forward(const Tensor& x) { return norm.forward(x); }
};

TEST(Join, DD12BuffersAreThoseOfTheLastRankThatHasInputs) {
  // A rank's mean moves from the one it is given a tenth of the way to the rank's number.
  const auto expect = [](const Counts& counts, double mean) {
    SCOPED_TRACE(::testing::PrintToString(counts));
    distributed::run(first_devices(counts.size()), [&](const ProcessGroup& group) {
      DistributedDataParallel model{Normed{}, group};
      const Tensor x = f64({group.rank() - 1.0, group.rank() + 1.0}, {2, 1});
      model.join([&] {
        for (int step = 0; step < counts[static_cast<std::size_t>(group.rank())]; ++step) {
          model(x).sum().backward();
        }
      });
      EXPECT_NEAR(model.module().norm.running_mean.item(), mean, 1e-12);
      EXPECT_EQ(model.module().norm.num_batches_tracked.item<std::int64_t>(),
                *std::max_element(counts.begin(), counts.end()));
    });
  };
  expect({1, 3}, 0.271);                             // rank 1's own: 0.1, 0.19, 0.271
  expect({1, 3, 2}, (0.2 * 0.9 + 0.1) * 0.9 + 0.1);  // rank 2's 0 and 0.2; then rank 1's own
  expect({3, 1}, 0);                                 // rank 1's 0, then rank 0's own
  expect({0, 1, 2}, 0.2 * 0.9 + 0.2);                // rank 2's own: 0.2, 0.38
  expect({2, 2}, 0.1 * 0.9 + 0.1);                   // rank 1's own
}

TEST(Join, BuffersStayEachRanksOwnWhereTheOptionSaysSo) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    DistributedDataParallel model{Normed{}, group, {.forward_sync_buffers = false}};
    const nn::BatchNorm1d& norm = model.module().norm;
    model.join([&] {
      for (int step = 0; step <= group.rank(); ++step) {
        model(full({2, 1}, group.rank() + 1, kF64)).sum().backward();
      }
      norm.weight.detach().fill_(group.rank() + 3);
    });
    EXPECT_NEAR(norm.running_mean.item(), group.rank() == 0 ? 0.1 : 0.38, 1e-12);
    EXPECT_EQ(norm.num_batches_tracked.item<std::int64_t>(), group.rank() + 1);
    EXPECT_EQ(norm.weight.item(), 4);  // parameters are the last rank's all the same
  });
}

TEST(Join, DD12EarlyTerminationEndsAllRanks) {
  for (const bool buffers : {false, true}) {
    std::vector<std::string> texts(3);
    std::vector<int> steps(3);
    distributed::run(first_devices(3), [&](const ProcessGroup& group) {
      struct Net {
        Affine affine;
        std::vector<Buffer> buffers;
        Tensor forward(const Tensor& x) const { return affine.forward(x); }
      };
      Net net;
      if (buffers) net.buffers.emplace_back(zeros({1}));
      DistributedDataParallel model{net, group};
      const auto r = static_cast<std::size_t>(group.rank());
      try {
        model.join(
            [&] {
              for (; steps[r] < (r == 1 ? 2 : 5); ++steps[r]) model(input(group)).sum().backward();
            },
            {.throw_on_early_termination = true});
      } catch (const Error& error) {
        texts[r] = error.what();
      }
    });
    EXPECT_EQ(steps, (std::vector<int>{2, 2, 2}));
    EXPECT_EQ(texts[1], "Rank 1 exhausted all inputs.");
    for (const std::size_t r : {0u, 2u}) {
      EXPECT_EQ(texts[r],
                "Detected at least one rank that exhausted inputs. Throwing across all ranks.");
    }
  }
}

// Also where backward is the first to tell: the group can be used after that.
TEST(Join, DD12EarlyTerminationLeavesTheRanksInStep) {
  distributed::run(first_devices(3), [](const ProcessGroup& group) {
    DistributedDataParallel model{Affine{}, group};
    const auto train = [&] {
      for (int step = 0; step < (group.rank() == 1 ? 1 : 3); ++step) {
        std::optional<Tensor> y;
        {
          const auto guard = model.no_sync();
          y = model(input(group));
        }
        y->sum().backward();
      }
    };
    EXPECT_TRUE(throws<Error>([&] { model.join(train, {.throw_on_early_termination = true}); },
                              group.rank() == 1 ? "exhausted all inputs" : "at least one rank"));
    const Tensor sum = full({3}, group.rank() + 1, kF64);
    group.all_reduce(sum).wait();
    EXPECT_EQ(sum.to_vector<double>(), Values(3, 6));
  });
}

TEST(Join, DD12EvenInputsAreNoEarlyTermination) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    DistributedDataParallel model{Affine{}, group};
    model.join(
        [&] {
          for (int step = 0; step < 2; ++step) model(input(group)).sum().backward();
        },
        {.throw_on_early_termination = true});
    EXPECT_EQ(grad_of(model.module().weight), 3);
  });
}

TEST(Join, NotEnabledItIsTheFunctionAlone) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    DistributedDataParallel model{Affine{}, group};
    int calls = 0;
    // Only one rank: nothing communicates.
    if (group.rank() == 0) model.join([&] { ++calls; }, {.enable = false});
    EXPECT_EQ(calls, group.rank() == 0 ? 1 : 0);
  });
}

TEST(Join, ForwardPassesMayOutnumberBackwardPasses) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    DistributedDataParallel model{Affine{}, group};
    model.join([&] {
      for (int step = 0; step < 1 + 2 * group.rank(); ++step) {
        model.zero_grad();
        const Tensor loss = (model(input(group)) + model(input(group))).sum();
        loss.backward({}, true);
        model.zero_grad();
        loss.backward();
      }
      if (group.rank() == 1) {
        const NoGradGuard guard;
        (void)model(input(group));  // as a validation would
      }
    });
    EXPECT_EQ(grad_of(model.module().weight), 2);  // rank 1's 2 + 2, halved
  });
}

TEST(Join, NoSyncIsOfTheRankAlone) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    DistributedDataParallel model{Affine{}, group};
    model.join([&] {
      // Rank 0 runs out while its gradients have not been averaged: they are lost.
      for (int step = 0; step < (group.rank() == 0 ? 3 : 4); ++step) {
        if (step % 2 == 0) {
          model.zero_grad();
          const auto guard = model.no_sync();
          model(input(group)).sum().backward();
          EXPECT_EQ(grad_of(model.module().weight), group.rank() + 1);
        } else {
          model(input(group)).sum().backward();
          EXPECT_EQ(grad_of(model.module().weight), step == 1 ? 3 : 2);
        }
      }
    });
  });
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

TEST(Join, UnusedParametersAreFoundAmongTheRanksThatHaveInputs) {
  const testing::CaughtWarnings warnings;  // that rank 0 has none
  distributed::run(first_devices(3), [](const ProcessGroup& group) {
    DistributedDataParallel model{TwoLayers{}, group, {.find_unused_parameters = true}};
    const int steps = group.rank() == 1 ? 0 : 2 + group.rank();
    model.join([&] {
      for (int step = 0; step < steps; ++step) {
        model.zero_grad();
        model(input(group), group.rank() == 0).sum().backward();
        EXPECT_NEAR(grad_of(model.module().first), step < 2 ? 4.0 / 3 : 1, 1e-12);
        EXPECT_EQ(model.module().second.grad().defined(), step < 2);
        if (step < 2) {
          EXPECT_NEAR(grad_of(model.module().second), 1.0 / 3, 1e-12);
        }
      }
    });
  });
}

TEST(Join, WhatARankHadAccumulatedIsNotUsed) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    DistributedDataParallel model{TwoLayers{}, group, {.find_unused_parameters = true}};
    model.join([&] {
      const bool last = group.rank() == 1;
      for (int step = 0; step < (last ? 2 : 1); ++step) {
        const auto pass = [&] { model(input(group), !last).sum().backward(); };
        if (step == 0) {
          const auto guard = model.no_sync();
          pass();
        } else {
          pass();
        }
      }
    });
    EXPECT_EQ(grad_of(model.module().first), 2);  // rank 1's 2 + 2, halved
    EXPECT_FALSE(model.module().second.grad().defined());
  });
}

// On every rank, also one that has joined: the group can be used after that.
TEST(Join, AnUnusedParameterIsStillNamed) {
  const std::string where = "parameter 1 (second) got none on rank 2. ";
  const std::vector<std::string> texts = {
      "This rank, 0, has no inputs left; of those that have, " + where,
      "All got a gradient on this rank, 1, but not on all others: " + where,
      "did not receive grad for rank 2: 1 (second)"};
  distributed::run(first_devices(3), [&](const ProcessGroup& group) {
    DistributedDataParallel model{TwoLayers{}, group};
    const auto train = [&] {
      for (int step = 0; step < group.rank(); ++step) {
        model(input(group), group.rank() != 2).sum().backward();
      }
    };
    EXPECT_TRUE(throws<AutogradError>([&] { model.join(train); },
                                      texts[static_cast<std::size_t>(group.rank())]));
    const Tensor sum = full({3}, group.rank() + 1, kF64);
    group.all_reduce(sum).wait();
    EXPECT_EQ(sum.to_vector<double>(), Values(3, 6));
  });
}

TEST(Join, BucketsAreRebuiltInTheOrderOfARankThatHasInputs) {
  struct Chain {
    Parameter first{ones({1})};
    Parameter second{ones({1})};
    Tensor forward(const Tensor& x) const { return x * first * second; }
  };
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    DistributedDataParallel model{Chain{}, group};
    model.join([&] {
      for (int step = 0; step < group.rank(); ++step) model(ones({1})).sum().backward();
    });
    EXPECT_EQ(model.logging_data().prev_iteration_grad_ready_order,
              (std::vector<std::size_t>{1, 0}));
  });
}

TEST(Join, AStaticGraphMayBeFirstSeenElsewhere) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    DistributedDataParallel model{TwoLayers{}, group, {.static_graph = true}};
    const auto epoch = [&](int steps) {
      model.join([&] {
        for (int step = 0; step < steps; ++step) {
          model.zero_grad();
          model(input(group), false).sum().backward();
        }
      });
    };
    epoch(group.rank());
    epoch(1);
    EXPECT_EQ(grad_of(model.module().first), 1.5);
    EXPECT_FALSE(model.module().second.grad().defined());
  });
}

TEST(Join, HooksSeeZerosOfARankThatHasNone) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    DistributedDataParallel model{Affine{}, group};
    Values seen;
    model.register_comm_hook([&](const GradBucket& bucket) {
      seen.push_back(bucket.buffer().to_vector<double>()[0]);
      return BucketFuture(group.all_reduce(bucket.buffer()), bucket.buffer());
    });
    model.join(
        [&] {
          for (int step = 0; step <= group.rank(); ++step) {
            model.zero_grad();
            model(input(group)).sum().backward();
          }
        },
        {.divide_by_initial_world_size = false});
    EXPECT_EQ(seen, group.rank() == 0 ? (Values{1, 0}) : (Values{2, 2}));
    EXPECT_EQ(grad_of(model.module().weight), 2);  // the hook's sum, as it is
  });
}

TEST(Join, AnExceptionReleasesTheOtherRanks) {
  for (const int thrower : {0, 1}) {
    EXPECT_TRUE(throws<std::domain_error>(
        [&] {
          distributed::run(first_devices(2), [&](const ProcessGroup& group) {
            DistributedDataParallel model{Affine{}, group};
            model.join([&] {
              for (int step = 0; step < 1 + 2 * group.rank(); ++step) {
                if (group.rank() == thrower && step == thrower * 2) {
                  throw std::domain_error("no more");
                }
                model(input(group)).sum().backward();
              }
            });
          });
        },
        "no more"));
  }
}

TEST(Join, AfterAnExceptionTheModelIsInNoJoin) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    DistributedDataParallel model{Affine{}, group};
    EXPECT_THROW(model.join([] { throw std::domain_error("at once"); }), std::domain_error);
    model(input(group)).sum().backward();
    EXPECT_EQ(grad_of(model.module().weight), 1.5);
  });
}

TEST(Join, OneWithinAnotherIsAnError) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    DistributedDataParallel model{Affine{}, group};
    model.join([&] {
      EXPECT_TRUE(throws<ValueError>([&] { model.join([] {}); }, "in a join already"));
      model(input(group)).sum().backward();  // still in the outer one
    });
    EXPECT_EQ(grad_of(model.module().weight), 1.5);
  });
}

TEST(Join, RanksAtDifferentPointsAreToldSo) {
  EXPECT_TRUE(throws<ValueError>(
      [] {
        distributed::run(first_devices(2), [](const ProcessGroup& group) {
          DistributedDataParallel model{Affine{}, group};
          model.join([&] {
            const Tensor y = model(input(group)).sum();
            if (group.rank() == 0) (void)model(input(group));
            y.backward();
          });
        });
      },
      "ranks 0 and 1 are not at the same point"));
}

// Each would have gradients of its own.
TEST(Join, RanksThatDivideDifferentlyAreToldSo) {
  EXPECT_TRUE(throws<ValueError>(
      [] {
        distributed::run(first_devices(3), [](const ProcessGroup& group) {
          DistributedDataParallel model{Affine{}, group};
          model.join(
              [&] {
                for (int batch = 0; batch < group.rank(); ++batch) {
                  model(input(group)).sum().backward();
                }
              },
              {.divide_by_initial_world_size = group.rank() < 2});
        });
      },
      "ranks 1 and 2 are not at the same point", "the same JoinOptions"));
}

// A joinable of the user's own: counts, over all ranks, what its ranks have counted.
struct Counter {
  ProcessGroup group;
  std::optional<JoinContext> context = {};
  int rounds = 0;
  int last = -1;

  struct Hook final : JoinHook {
    explicit Hook(Counter& owner) : counter(owner) {}
    ~Hook() override { counter.context.reset(); }
    void begin(const JoinContext& join) override { counter.context.emplace(join); }
    void main_hook(int phase, const JoinExchange&) override {
      EXPECT_EQ(phase, 7);
      (void)counter.sum(0);
    }
    void post_hook(int last_rank) override { counter.last = last_rank; }
    Counter& counter;
  };
  std::unique_ptr<JoinHook> join_hook(const JoinOptions&) { return std::make_unique<Hook>(*this); }
  Device join_device() const { return group.device(); }
  ProcessGroup join_process_group() const { return group; }

  double sum(double mine) {
    ++rounds;
    const Tensor total = full({1}, mine, kF64);
    (void)group.blocking().all_reduce(total);
    return total.item();
  }
  double count() {
    if (context) (void)context->meet(7);
    return sum(1);
  }
};

TEST(Join, SeveralJoinablesTakeTurns) {
  distributed::run(first_devices(3), [](const ProcessGroup& group) {
    DistributedDataParallel model{Affine{}, group};
    Counter counter{group};
    join(std::tie(model, counter), [&] {
      for (int step = 0; step <= group.rank(); ++step) {
        EXPECT_EQ(counter.count(), 3 - step);
        model(input(group)).sum().backward();
        EXPECT_EQ(counter.count(), 3 - step);
      }
    });
    EXPECT_EQ(counter.rounds, 6);
    EXPECT_EQ(counter.last, 2);
    EXPECT_FALSE(counter.context);
  });
}

TEST(Join, APhaseOutOfRangeIsRefused) {
  distributed::run(first_devices(1), [](const ProcessGroup& group) {
    Counter counter{group};
    join(counter, [&] {
      for (const int phase : {-1, JoinContext::kPhases}) {
        EXPECT_TRUE(
            throws<ValueError>([&] { (void)counter.context->announce(phase); },
                               "expected a phase from 0 to 255, got " + std::to_string(phase)));
        EXPECT_TRUE(throws<ValueError>([&] { (void)counter.context->meet(phase); }, "phase"));
      }
    });
  });
}

TEST(Join, AnExchangeKnowsTheRanksOfItsGroupAlone) {
  const JoinExchange exchange({3, 0});
  EXPECT_EQ(exchange.code(0), 3);
  for (const int rank : {-1, 2}) {
    EXPECT_TRUE(throws<IndexError>([&] { (void)exchange.code(rank); },
                                   "expected a rank from 0 to 1, got " + std::to_string(rank)));
  }
}

TEST(Join, ARankWithFewerJoinablesIsToldSo) {
  EXPECT_TRUE(throws<ValueError>(
      [] {
        distributed::run(first_devices(2), [](const ProcessGroup& group) {
          DistributedDataParallel model{Affine{}, group};
          Counter counter{group};
          if (group.rank() == 1) return model.join([] {});
          join(std::tie(model, counter), [&] { (void)counter.count(); });
        });
      },
      "rank 0 has 2 joinables at least, rank 1 has 1"));
}

TEST(Join, JoinablesOfDifferentGroupsAreRefused) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    DistributedDataParallel model{Affine{}, group};
    Counter counter{group.new_group({0, 1})};
    EXPECT_TRUE(
        throws<ValueError>([&] { join(std::tie(model, counter), [] {}); }, "one process group"));
    model(input(group)).sum().backward();
    EXPECT_EQ(grad_of(model.module().weight), 1.5);
  });
}

}  // namespace distributed_join_test
}  // namespace lockstep
