// SPDX-License-Identifier: Apache-2.0

// DistributedDataParallel over LibTorch's modules: what is lockstep's own is tested with lockstep's
// modules; here it is whether LibTorch's gradients, buffers and passes take part in it.
#include <lockstep/autograd/engine/backward_pass.hpp>
#include <lockstep/autograd/grad_hooks.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/torch.hpp>

#include "support/expect_error.hpp"
#include "support/gate.hpp"
#include "torch/distributed_losses.hpp"
#include "torch/nets.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ls = lockstep;
namespace nn = torch::nn;
using ls::distributed::ProcessGroup;
using ls::libtorch::DistributedDataParallel;
using ls::testing::close;
using ls::testing::f64;
using ls::testing::host_list;
using ls::testing::throws;
using ls::testing::TorchL0;
using ls::testing::TorchReplaceable;

namespace torch_distributed_test {

void on_two(const std::function<void(const ProcessGroup&)>& body) {
  ls::distributed::run(host_list(2), body);
}

// y = a·x, and + b·x where asked: parameter b is left out otherwise.
struct Branch : nn::Module {
  torch::Tensor a = register_parameter("a", f64({2}, {1}));
  torch::Tensor b = register_parameter("b", f64({3}, {1}));

  torch::Tensor forward(const torch::Tensor& x, bool both) { return both ? a * x + b * x : a * x; }
};

// Gives a device whose streams are queued work that takes a while: what is not waited for is seen
// to be missing.
void keep_busy(ls::Device device) {
  const ls::Tensor large = ls::zeros({1 << 22}, {.device = device});
  for (int i = 0; i < 10; ++i) large.fill_(i);
}

// Rank r's input.
torch::Tensor x_of(const ProcessGroup& group) { return f64({group.rank() + 1.0}, {1}); }

TEST(TorchDistributed, LossesAreThoseOfOneProcess) {
  const std::vector<double> alone = ls::testing::torch_losses_of_one();
  on_two([&](const ProcessGroup& group) {
    const std::vector<double> ranks = ls::testing::torch_losses_of(group);
    ls::testing::expect_near_losses(ranks, alone);
  });
}

TEST(TorchDistributed, RankZerosTensorsBecomeEverybodys) {
  on_two([](const ProcessGroup& group) {
    nn::BatchNorm1d norm(nn::BatchNorm1dOptions(2));
    norm->to(torch::kFloat64);
    const torch::NoGradGuard guard;
    const double own = group.rank() + 1;
    norm->weight.fill_(own);
    norm->running_mean.fill_(own);
    DistributedDataParallel model{norm, group};
    EXPECT_TRUE(close(norm->weight, f64({1, 1}, {2})));
    EXPECT_TRUE(close(norm->running_mean, f64({1, 1}, {2})));
    norm->running_mean.fill_(10 * own);
    norm->running_var.fill_(1 - norm->options.eps());
    norm->eval();
    EXPECT_TRUE(close(model(f64({10, 11}, {1, 2})), f64({0, 1}, {1, 2})));
    EXPECT_TRUE(close(norm->running_mean, f64({10, 10}, {2})));
  });
}

// Buffers that take a while to arrive.
struct Large : nn::Module {
  torch::Tensor w = register_parameter("w", f64({1}, {1}));
  torch::Tensor a = register_buffer("a", torch::zeros({1 << 20}, torch::kFloat64));
  torch::Tensor b = register_buffer("b", torch::zeros({1 << 20}, torch::kFloat64));

  torch::Tensor forward(const torch::Tensor& x) { return w * x + b[-1]; }
};

TEST(TorchDistributed, ForwardWaitsForRankZerosBuffers) {
  const ls::testing::QueuedCompute queued;
  on_two([](const ProcessGroup& group) {
    const auto net = std::make_shared<Large>();
    DistributedDataParallel model{net, group};
    const torch::NoGradGuard guard;
    net->b.fill_(group.rank() + 1);
    EXPECT_EQ(model(f64({0}, {1})).item<double>(), 1);
  });
}

TEST(TorchDistributed, GradientsAreViewsOfBuckets) {
  on_two([](const ProcessGroup& group) {
    const auto net = std::make_shared<TorchL0>();
    DistributedDataParallel model{net, group};
    const void* memory = nullptr;
    for (int step = 0; step < 4; ++step) {
      net->zero_grad(/*set_to_none=*/false);
      if (step == 3) net->weight.mutable_grad() = torch::Tensor();
      model(f64({group.rank() + 1.0, 1}, {1, 2})).sum().backward();
      EXPECT_TRUE(close(net->weight.grad(), f64({1.5, 1, 1.5, 1}, {2, 2}))) << step;
      EXPECT_TRUE(close(net->bias.grad(), f64({1, 1}, {2}))) << step;
      if (step == 2) {
        EXPECT_EQ(net->weight.grad().data_ptr(), memory);
        EXPECT_EQ(model.logging_data().num_gradient_copies, 4U) << "new buckets after the first";
      }
      memory = net->weight.grad().data_ptr();
    }
    EXPECT_EQ(model.logging_data().num_iterations, 4U);
  });
}

TEST(TorchDistributed, TakesPointersAndHoldersWithOptions) {
  on_two([](const ProcessGroup& group) {
    const nn::Linear net(2, 2);
    EXPECT_TRUE(
        (DistributedDataParallel{net, group, {.static_graph = true}}.options().static_graph));
    EXPECT_TRUE((DistributedDataParallel{net, {.static_graph = true}}.options().static_graph));
    EXPECT_TRUE(
        (DistributedDataParallel{net.ptr(), {.static_graph = true}}.options().static_graph));
    EXPECT_EQ((DistributedDataParallel{net}.module()), net.ptr());
  });
}

TEST(TorchDistributed, NoSyncAccumulates) {
  on_two([](const ProcessGroup& group) {
    const auto net = std::make_shared<TorchL0>();
    DistributedDataParallel model{net, group};
    const auto step = [&] { model(f64({group.rank() + 1.0, 1}, {1, 2})).sum().backward(); };
    {
      const auto guard = model.no_sync();
      step();
      const double own = group.rank() + 1;
      EXPECT_TRUE(close(net->weight.grad(), f64({own, 1, own, 1}, {2, 2})));
    }
    step();
    EXPECT_TRUE(close(net->weight.grad(), f64({3, 2, 3, 2}, {2, 2})));
    const auto guard = model.no_sync();
    step();  // onto the mean, in the bucket
    const double own = 4 + group.rank();
    EXPECT_TRUE(close(net->weight.grad(), f64({own, 3, own, 3}, {2, 2})));
  });
}

TEST(TorchDistributed, AParameterWithoutGradientIsAnErrorThatNamesIt) {
  on_two([](const ProcessGroup& group) {
    const auto net = std::make_shared<Branch>();
    DistributedDataParallel model{net, group};
    EXPECT_TRUE(throws<ls::AutogradError>([&] { model(x_of(group), false).backward(); }, "1 (b)",
                                          "find_unused_parameters"));
    EXPECT_TRUE(throws<ls::AutogradError>([&] { model(x_of(group), true); }, "1 (b)"));
  });
}

TEST(TorchDistributed, FindsUnusedParameters) {
  on_two([](const ProcessGroup& group) {
    const auto net = std::make_shared<Branch>();
    DistributedDataParallel model{net, group, {.find_unused_parameters = true}};
    // Used on no rank: stays as it is.
    model(x_of(group), false).backward();
    EXPECT_TRUE(close(net->a.grad(), f64({1.5}, {1})));
    EXPECT_FALSE(net->b.grad().defined());
    // Used on rank 1 alone: its gradient of 2, on two ranks.
    net->zero_grad();
    model(x_of(group), group.rank() == 1).backward();
    EXPECT_TRUE(close(net->a.grad(), f64({1.5}, {1})));
    EXPECT_TRUE(close(net->b.grad(), f64({1}, {1})));
    // What has accumulated stays, to the bit, where nobody has used it.
    model(x_of(group), false).backward();
    EXPECT_TRUE(close(net->a.grad(), f64({3}, {1})));
    EXPECT_TRUE(close(net->b.grad(), f64({1}, {1})));
  });
}

TEST(TorchDistributed, ABackwardForSomeParametersDoesNotReachTheOthers) {
  on_two([](const ProcessGroup& group) {
    const auto net = std::make_shared<Branch>();
    DistributedDataParallel made{net, group, {.find_unused_parameters = true}};
    auto model = std::move(made);
    torch::autograd::backward({model(x_of(group), true)}, {}, false, false, {net->a});
    EXPECT_TRUE(close(net->a.grad(), f64({1.5}, {1})));
    EXPECT_FALSE(net->b.grad().defined());
    model(x_of(group), true).backward();
    EXPECT_TRUE(close(net->a.grad(), f64({3}, {1})));
    EXPECT_TRUE(close(net->b.grad(), f64({1.5}, {1})));
  });
}

TEST(TorchDistributed, StaticGraphNeedsNoSearch) {
  on_two([](const ProcessGroup& group) {
    const auto net = std::make_shared<Branch>();
    DistributedDataParallel model{net, group, {.static_graph = true}};
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      model(x_of(group), false).backward();
      EXPECT_TRUE(close(net->a.grad(), f64({1.5}, {1})));
      EXPECT_FALSE(net->b.grad().defined());
    }
    EXPECT_TRUE(throws<ls::AutogradError>([&] { model(x_of(group), true).backward(); }, "1 (b)"));
  });
}

TEST(TorchDistributed, JoinTakesUnevenInputs) {
  on_two([](const ProcessGroup& group) {
    const auto net = std::make_shared<TorchL0>();
    DistributedDataParallel model{net, group};
    torch::optim::SGD sgd(net->parameters(), 0.5);
    int steps = 0;
    model.join([&] {
      for (; steps < (group.rank() == 0 ? 1 : 3); ++steps) {
        sgd.zero_grad();
        model(f64({1, 1}, {1, 2})).sum().backward();
        const double mean = steps == 0 ? 1 : 0.5;
        EXPECT_TRUE(close(net->bias.grad(), f64({mean, mean}, {2})));
        sgd.step();
      }
    });
    EXPECT_TRUE(close(net->bias, f64({0.5 - 1, -0.5 - 1}, {2}))) << group.rank();
    EXPECT_TRUE(close(net->bias.grad(), f64({0.5, 0.5}, {2}))) << group.rank();
  });
}

TEST(TorchDistributed, ACommunicationHookReducesTheBuckets) {
  const ls::testing::QueuedCompute queued;
  on_two([](const ProcessGroup& group) {
    const auto net = std::make_shared<TorchL0>();
    DistributedDataParallel model{net, group};
    model.register_comm_hook([](const ls::GradBucket& bucket) {
      keep_busy(bucket.buffer().device());
      return ls::BucketFuture(bucket.buffer().fill_(7));
    });
    for (int pass = 0; pass < 3; ++pass) {
      net->zero_grad();
      model(f64({1, 1}, {1, 2})).sum().backward();
      EXPECT_TRUE(close(net->bias.grad(), f64({7, 7}, {2}))) << pass;
    }
  });
}

TEST(TorchDistributed, FrozenTiedAndUnreachedParameters) {
  struct Tied : nn::Module {
    torch::Tensor a = register_parameter("a", f64({2}, {1}));
    torch::Tensor same = register_parameter("same", a);
    torch::Tensor frozen = register_parameter("frozen", f64({5}, {1}), /*requires_grad=*/false);
    torch::Tensor forward(const torch::Tensor& x) { return (a + same) * x + frozen; }
  };
  on_two([](const ProcessGroup& group) {
    const auto net = std::make_shared<Tied>();
    DistributedDataParallel model{net, group};
    EXPECT_EQ(model.logging_data().num_parameter_tensors, 1U);
    const torch::Tensor y = model(x_of(group));
    y.backward({}, /*retain_graph=*/true);
    EXPECT_TRUE(close(net->a.grad(), f64({3}, {1})));
    EXPECT_FALSE(net->frozen.grad().defined());
    // Not synchronised.
    EXPECT_TRUE(
        close(torch::autograd::grad({y}, {net->a})[0], f64({2.0 * (group.rank() + 1)}, {1})));
    EXPECT_TRUE(close(net->a.grad(), f64({3}, {1})));
  });
}

TEST(TorchDistributed, AParameterFrozenAfterForwardCountsAsZero) {
  on_two([](const ProcessGroup& group) {
    const auto net = std::make_shared<TorchL0>();
    DistributedDataParallel model{net, group};
    const torch::Tensor loss = model(f64({1, 1}, {1, 2})).sum();
    if (group.rank() == 1) net->bias.requires_grad_(false);
    loss.backward();
    EXPECT_TRUE(close(net->bias.grad(), f64({0.5, 0.5}, {2}))) << group.rank();
  });
}

// The last bucket is reduced by the thread of backward, which has nothing else to do.
TEST(TorchDistributed, KnowsTheLastNodeOfAPass) {
  namespace detail = ls::libtorch::detail;
  const auto net = std::make_shared<TorchL0>();
  const detail::LentModule<TorchL0> lent(net, "cpu:0");
  const auto gradients =
      std::make_shared<detail::LentGradients>(lent.originals(), lent.parameters());
  gradients->attach();
  std::vector<bool> last;
  for (const auto& [name, parameter] : lent.parameters()) {
    ls::detail::add_leaf_hook(parameter.impl(), [&last](const ls::Tensor&) {
      last.push_back(ls::detail::current_backward_pass->at_last_node());
    });
  }
  const auto seen = [&](const torch::Tensor& x, const std::vector<torch::Tensor>& inputs) {
    last.clear();
    torch::autograd::backward({net->forward(x).sum()}, {}, {}, false, inputs);
    return last;
  };
  const torch::Tensor x = f64({1, 1}, {1, 2});
  EXPECT_EQ(seen(x, {}), (std::vector{false, true}));
  EXPECT_EQ(seen(x, {}), (std::vector{false, true}));
  // There the input's gradient may come last, here what is asked for.
  EXPECT_EQ(seen(x.clone().requires_grad_(), {}), (std::vector{false, false}));
  EXPECT_EQ(seen(x, {net->weight}), (std::vector{false}));
}

TEST(TorchDistributed, AnUndefinedGradientIsZero) {
  struct Nothing : torch::autograd::Function<Nothing> {
    static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& x) {
      return x.clone();
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   const torch::autograd::variable_list&) {
      return {torch::Tensor()};
    }
  };
  struct Half : nn::Module {
    torch::Tensor a = register_parameter("a", f64({2}, {1}));
    torch::Tensor forward(const torch::Tensor& x, bool none) {
      return (none ? Nothing::apply(a) : a) * x;
    }
  };
  on_two([](const ProcessGroup& group) {
    const auto net = std::make_shared<Half>();
    DistributedDataParallel model{net, group};
    model(x_of(group), group.rank() == 0).backward();
    EXPECT_TRUE(close(net->a.grad(), f64({1}, {1})));
  });
}

TEST(TorchDistributed, FollowsMemoryThatMoves) {
  on_two([](const ProcessGroup& group) {
    const auto net = std::make_shared<TorchL0>();
    DistributedDataParallel model{net, group};
    net->weight.set_data(f64({1, 0, 0, 1}, {2, 2}) * (group.rank() + 1));
    model.join([&] {
      if (group.rank() == 1) model(f64({1, 1}, {1, 2})).sum().backward();
    });
    EXPECT_TRUE(close(net->weight, f64({2, 0, 0, 2}, {2, 2}))) << "rank 1 went on longest";
  });
}

TEST(TorchDistributed, SynchronisesWhatHasBeenLoaded) {
  std::ostringstream saved;
  torch::save(nn::Linear(2, 1), saved);
  on_two([&](const ProcessGroup& group) {
    nn::Linear net(2, 1);
    DistributedDataParallel model{net, group};
    std::istringstream stream(saved.str());
    torch::load(net, stream);
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      model(torch::full({1, 2}, group.rank() + 1.0)).sum().backward();
      EXPECT_TRUE(torch::equal(net->weight.grad(), torch::full({1, 2}, 1.5F))) << step;
    }
  });
}

TEST(TorchDistributed, RefusesWhatItCannotFollow) {
  on_two([](const ProcessGroup& group) {
    const auto net = std::make_shared<TorchL0>();
    {
      DistributedDataParallel model{net, group};
      EXPECT_TRUE(throws<ls::ModuleError>([&] { DistributedDataParallel other(net, group); },
                                          "\"weight\" belongs to another"));
    }
    DistributedDataParallel model{net, group};  // the first has given it up
    EXPECT_TRUE(throws<ls::AutogradError>(
        [&] {
          model(f64({1, 1}, {1, 2})).sum().backward({}, {}, /*create_graph=*/true);
        },
        "create_graph"));
  });
  const auto change = [](const std::function<void(TorchReplaceable&)>& body,
                         const std::string& message) {
    on_two([&](const ProcessGroup& group) {
      const auto net = std::make_shared<TorchReplaceable>();
      DistributedDataParallel model{net, group};
      body(*net);
      EXPECT_TRUE(throws<ls::ModuleError>([&] { model(f64({1, 1}, {1, 2})); }, message));
    });
  };
  change([](TorchReplaceable& net) { net.to(torch::kFloat32); },
         "parameter \"weight\" was of shape [2, 2] and f64 on cpu:");
  change([](TorchReplaceable& net) { net.register_buffer("late", f64({1}, {1})); },
         "has 3 parameters");
  change([](TorchReplaceable& net) { net.replace(); }, "parameter \"weight\" has been replaced");
  on_two([](const ProcessGroup& group) {
    const auto net = std::make_shared<TorchL0>();
    net->weight.requires_grad_(false);
    DistributedDataParallel model{net, group};
    model(f64({1, 1}, {1, 2})).sum().backward();
    net->weight.requires_grad_(true);
    EXPECT_TRUE(throws<ls::ModuleError>(
        [&] {
          model(f64({1, 1}, {1, 2}));
        },
        "parameter \"weight\" was replaced, added or unfrozen"));
    const torch::NoGradGuard evaluated;
    EXPECT_NO_THROW(model(f64({1, 1}, {1, 2})));
  });
}

TEST(TorchDistributed, OneThatHasBeenMovedFromSaysSo) {
  on_two([](const ProcessGroup& group) {
    DistributedDataParallel model{nn::Linear(1, 1), group};
    DistributedDataParallel moved = std::move(model);
    EXPECT_TRUE(throws<ls::ModuleError>(
        [&] {
          model(torch::ones({1, 1}));
        },
        "DistributedDataParallel", "moved from"));
    EXPECT_TRUE(throws<ls::ModuleError>([&] { model.zero_grad(); }, "moved from"));
    moved(torch::ones({1, 1})).sum().backward();
    EXPECT_TRUE(moved.parameters()[0].grad().defined());
  });
}

TEST(TorchDistributed, RefusesOtherDtypesAndOtherModules) {
  struct Complex : nn::Module {
    torch::Tensor w = register_parameter("w", torch::ones({2}, torch::kComplexDouble));
    torch::Tensor forward(const torch::Tensor& x) { return w * x; }
  };
  on_two([](const ProcessGroup& group) {
    EXPECT_TRUE(throws<ls::DtypeError>(
        [&] { DistributedDataParallel model(std::make_shared<Complex>(), group); },
        "parameter \"w\" is of ComplexDouble"));
    EXPECT_TRUE(throws<ls::ModuleError>(
        [&] { DistributedDataParallel model(nn::Linear(2, 2 + group.rank()), group); },
        "parameter 0, \"weight\", is of shape [2, 2]", "but of shape [3, 2]"));
    EXPECT_TRUE(throws<ls::ModuleError>(
        [&] { DistributedDataParallel model(std::shared_ptr<TorchL0>(), group); }, "null"));
    const auto apart = std::make_shared<TorchReplaceable>();
    apart->replace_by_one_elsewhere();
    EXPECT_TRUE(throws<ls::ModuleError>([&] { DistributedDataParallel model(apart, group); },
                                        "(device_ids[0])", "meta (parameter \"bias\")"));
    EXPECT_TRUE(throws<ls::DeviceError>(
        [&] {
          DistributedDataParallel model(std::make_shared<TorchL0>(), group,
                                        {.device_ids = {"cuda:99"}});
        },
        "cuda:99 does not exist"));
    if (group.rank() > 1) throw std::logic_error("not reached");
  });
}

TEST(TorchDistributed, ABackwardThatThrowsEndsItsUse) {
  on_two([](const ProcessGroup& group) {
    const auto net = std::make_shared<TorchL0>();
    DistributedDataParallel model{net, group};
    net->weight.register_hook([](const torch::Tensor& grad) -> torch::Tensor {
      throw std::runtime_error("of the user's");
      return grad;
    });
    EXPECT_ANY_THROW(model(f64({1, 1}, {1, 2})).sum().backward());
    EXPECT_TRUE(throws<ls::AutogradError>(
        [&] {
          model(f64({1, 1}, {1, 2}));
        },
        "a backward has thrown"));
  });
}

}  // namespace torch_distributed_test
