// SPDX-License-Identifier: Apache-2.0

// DataParallel over LibTorch's modules: the reference's cases by their ids, each against the plain
// module. Left out are those that need two devices of LibTorch's own (D09, D10, D22, D25), and
// those of what a torch::nn::Module has and Python's has not, or the other way (R04, R15 to R17).
#include <lockstep/torch.hpp>

#include "support/expect_error.hpp"
#include "support/warnings.hpp"
#include "torch/nets.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace ls = lockstep;
namespace nn = torch::nn;
using ls::libtorch::DataParallel;
using ls::testing::close;
using ls::testing::f64;
using ls::testing::host_list;
using ls::testing::throws;
using ls::testing::torch_x5;
using ls::testing::torch_y5;
using ls::testing::TorchL0;

namespace torch_data_parallel_test {

std::vector<torch::Tensor> grads_of(const nn::Module& module) {
  std::vector<torch::Tensor> grads;
  for (const torch::Tensor& parameter : module.parameters()) grads.push_back(parameter.grad());
  return grads;
}

// Whether two modules of the same structure have the same gradients.
::testing::AssertionResult same_grads(const nn::Module& a, const nn::Module& b,
                                      double tolerance = 1e-12) {
  const auto of_a = grads_of(a), of_b = grads_of(b);
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    if (of_a[i].defined() != of_b[i].defined() ||
        (of_a[i].defined() && !close(of_a[i], of_b[i], tolerance))) {
      return ::testing::AssertionFailure() << a.named_parameters().keys()[i] << ":\n"
                                           << of_a[i] << "\nand\n"
                                           << of_b[i];
    }
  }
  return ::testing::AssertionSuccess();
}

template <class Net>
std::shared_ptr<Net> clone(const std::shared_ptr<Net>& net) {
  return std::dynamic_pointer_cast<Net>(net->clone());
}

// Whether the results are joined by the one node whose replicas' parts run at once.
bool runs_in_parallel(const torch::Tensor& gathered) {
  return gathered.grad_fn()->next_edge(0).function->name() == "lockstep::ParallelBackward";
}

struct Mlp : nn::Cloneable<Mlp> {
  nn::Linear fc1{nullptr}, fc2{nullptr};

  Mlp() { reset(); }
  void reset() override {
    fc1 = register_module("fc1", nn::Linear(6, 5));
    fc2 = register_module("fc2", nn::Linear(5, 3));
    to(torch::kFloat64);
  }
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::tanh(fc1(x))); }
};

TEST(TorchDataParallel, D01GivesTheWholeBatchsResultAndGradients) {
  for (const int count : {1, 2, 3, 4, 8}) {
    const auto net = std::make_shared<TorchL0>();
    const DataParallel model{net, host_list(count)};
    for (int round = 0; round < 3; ++round) {
      net->zero_grad();
      const torch::Tensor y = model(torch_x5());
      EXPECT_TRUE(torch::equal(y, torch_y5()));
      EXPECT_EQ(count > 1, runs_in_parallel(y));
      y.sum().backward();
      EXPECT_TRUE(torch::equal(net->weight.grad(), f64({3, 3, 3, 3}, {2, 2})));
      EXPECT_TRUE(torch::equal(net->bias.grad(), f64({5, 5}, {2})));
    }
  }
  const DataParallel twice{std::make_shared<TorchL0>(), {"cpu:0", "cpu:0"}};
  EXPECT_TRUE(torch::equal(twice(torch_x5()), torch_y5()));
}

TEST(TorchDataParallel, OneThatHasBeenMovedFromSaysSo) {
  for (const int count : {1, 2}) {
    DataParallel model{std::make_shared<TorchL0>(), host_list(count)};
    const DataParallel moved = std::move(model);
    EXPECT_TRUE(throws<ls::ModuleError>([&] { model(torch_x5()); }, "DataParallel", "moved from"));
    EXPECT_TRUE(throws<ls::ModuleError>([&] { model.renew(); }, "moved from"));
    EXPECT_TRUE(throws<ls::ModuleError>([&] { (void)model.parameters(); }, "moved from"));
    EXPECT_TRUE(throws<ls::ModuleError>([&] { (void)model.output_device(); }, "moved from"));
    EXPECT_TRUE(torch::equal(moved(torch_x5()), torch_y5()));
    ls::libtorch::DataParallelModel parts{std::make_shared<TorchL0>(), host_list(count)};
    const auto moved_parts = std::move(parts);
    EXPECT_TRUE(throws<ls::ModuleError>([&] { parts(torch_x5()); }, "moved from"));
  }
}

TEST(TorchDataParallel, D04AndX05DifferentiatesTwice) {
  const auto net = std::make_shared<Mlp>(), plain = clone(net);
  const DataParallel model{net, host_list(2)};
  const torch::Tensor x = torch::randn({5, 6}, torch::kFloat64);
  const auto penalty = [&](const auto& module) {
    const torch::Tensor input = x.clone().requires_grad_();
    const torch::Tensor y = module(input);
    const auto slopes = torch::autograd::grad({y.pow(2).sum()}, {input}, {}, true, true);
    (slopes[0].pow(2).mean() + y.sum()).backward();
    return input.grad();
  };
  const torch::Tensor mine = penalty(model);
  const torch::Tensor theirs = penalty([&](const auto& input) { return plain->forward(input); });
  EXPECT_TRUE(close(mine, theirs));
  EXPECT_TRUE(same_grads(*net, *plain));
}

TEST(TorchDataParallel, D05SumsSparseGradients) {
  for (const bool sparse : {false, true}) {
    const nn::Embedding net(nn::EmbeddingOptions(4, 2).sparse(sparse));
    const DataParallel model{net, host_list(2)};
    model(torch::tensor({3, 0, 3})).sum().backward();
    const torch::Tensor grad = net->weight.grad();
    EXPECT_EQ(grad.is_sparse(), sparse);
    EXPECT_TRUE(torch::equal(sparse ? grad.to_dense() : grad,
                             torch::tensor({{1, 1}, {0, 0}, {0, 0}, {2, 2}}, torch::kFloat32)));
  }
}

struct Scaling {
  std::optional<torch::Tensor> offset;
  double factor = 1;
};
struct Results {
  torch::Tensor scaled;
  std::map<std::string, std::vector<torch::Tensor>> parts;
  std::optional<torch::Tensor> none;
};
// Any number of arguments, keyword arguments, and a nested result.
struct Nested : nn::Cloneable<Nested> {
  torch::Tensor w;
  Nested() { reset(); }
  void reset() override { w = register_parameter("w", f64({2}, {1})); }
  Results forward(const torch::Tensor& a, const std::vector<torch::Tensor>& list, double s,
                  const Scaling& scaling) {
    torch::Tensor y = (a * list[0] + list[1]) * s * w;
    if (scaling.offset) y = y + *scaling.offset * scaling.factor;
    return {y, {{"sin", {torch::sin(a * w), a}}}, std::nullopt};
  }
};

TEST(TorchDataParallel, D06AndG15DividesNestedArgumentsAndGathersNestedResults) {
  const auto net = std::make_shared<Nested>(), plain = clone(net);
  const DataParallel model{net, host_list(3)};
  const auto matrix = [] { return torch::randn({5, 5}, torch::kFloat64).requires_grad_(); };
  const torch::Tensor a = matrix(), b = matrix(), c = matrix(), offset = matrix();
  const auto loss = [](const Results& results) {
    return results.scaled.sum() + results.parts.at("sin")[0].pow(2).sum();
  };
  const Scaling scaling{offset, 0.5};
  const Results mine = model(a, std::vector{b, c}, 3.0, ls::kwargs(scaling));
  const Results theirs = plain->forward(a, {b, c}, 3.0, scaling);
  EXPECT_TRUE(close(mine.scaled, theirs.scaled));
  EXPECT_TRUE(torch::equal(mine.parts.at("sin")[1], a));
  EXPECT_FALSE(mine.none.has_value());
  const auto grads = [&](const Results& results, const torch::Tensor& w) {
    return torch::autograd::grad({loss(results)}, {a, b, c, offset, w});
  };
  const auto my_grads = grads(mine, net->w), their_grads = grads(theirs, plain->w);
  for (std::size_t i = 0; i < my_grads.size(); ++i) {
    EXPECT_TRUE(close(my_grads[i], their_grads[i])) << i;
  }
  EXPECT_FALSE(net->w.grad().defined());  // autograd::grad accumulates nothing
}

TEST(TorchDataParallel, K03ToK06PlansAllArgumentsTogether) {
  const auto net = std::make_shared<Nested>();
  const DataParallel model{net, host_list(4)};
  const torch::Tensor x = torch::ones({9, 1}, torch::kFloat64);
  const Results results = model(x, std::vector{x, x}, 1.0, ls::kwargs(Scaling{std::nullopt, 2}));
  EXPECT_EQ(results.scaled.size(0), 9);
  EXPECT_TRUE(throws<ls::ValueError>(
      [&] {
        model(x, std::vector{x, x}, 1.0, ls::kwargs(Scaling{x.slice(0, 0, 1)}));
      },
      "kwargs.offset", "9", "1"));
}

TEST(TorchDataParallel, D12KeepsNamesAndTheModule) {
  const auto net = std::make_shared<Mlp>();
  DataParallel model{net, host_list(2)};
  EXPECT_EQ(model.module(), net);
  EXPECT_EQ(model.module()->named_parameters().keys()[0], "fc1.weight");
  EXPECT_TRUE(model.parameters()[0].is_same(net->fc1->weight));
}

struct Throws : nn::Cloneable<Throws> {
  void reset() override {}
  torch::Tensor forward(const torch::Tensor& x) {
    if (x[0].item<double>() > 0) throw std::out_of_range("row " + std::to_string(x.size(0)));
    return x;
  }
};

TEST(TorchDataParallel, D13P05AndX07NameTheReplica) {
  const auto net = std::make_shared<Throws>();
  const torch::Tensor x = torch::ones(5);
  const DataParallel one{net, host_list(1)}, three{net, host_list(3)};
  EXPECT_TRUE(throws<std::out_of_range>([&] { one(x); }, "row 5"));
  x[0] = 0;
  try {
    three(x);
    FAIL();
  } catch (const ls::ReplicaFailure& failure) {
    EXPECT_EQ(failure.replica(), 1u);
    EXPECT_EQ(failure.device(), ls::Device("cpu:1"));
    EXPECT_NE(dynamic_cast<const std::out_of_range*>(&failure), nullptr);
  }
}

struct Mean : nn::Cloneable<Mean> {
  torch::Tensor w;
  Mean() { reset(); }
  void reset() override { w = register_parameter("w", f64({1}, {1})); }
  torch::Tensor forward(const torch::Tensor& x) { return (x * w).mean(); }
};

TEST(TorchDataParallel, D14D15AndX06HasAPolicyForScalars) {
  const torch::Tensor x = torch::arange(1, 11, torch::kFloat64);
  const auto net = std::make_shared<Mean>();
  {
    const ls::testing::CaughtWarnings warnings;
    const torch::Tensor means = DataParallel{net, host_list(3)}(x);
    EXPECT_TRUE(close(means, f64({2.5, 6.5, 9.5}, {3})));
    EXPECT_EQ(warnings.count("scalars"), 1);
    EXPECT_EQ((DataParallel{net, host_list(2)}(x.slice(0, 0, 1)).dim()), 1);
  }
  const DataParallel model{net, host_list(3), {.scalar_outputs = ls::Reduction::mean}};
  const torch::Tensor mean = model(x);
  EXPECT_NEAR(mean.item<double>(), 5.5, 1e-12);
  mean.backward();
  EXPECT_NEAR(net->w.grad().item<double>(), 5.5, 1e-12);
}

TEST(TorchDataParallel, D16RunsWithoutRows) {
  const DataParallel model{std::make_shared<TorchL0>(), host_list(2)};
  EXPECT_EQ(model(torch::zeros({0, 2}, torch::kFloat64)).sizes(),
            (std::vector<std::int64_t>{0, 2}));
}

TEST(TorchDataParallel, D20AndX01RecordsNothingWithoutGradMode) {
  const auto net = std::make_shared<Mlp>();
  const DataParallel model{net, host_list(4)};
  const torch::Tensor x = torch::randn({8, 6}, torch::kFloat64);
  {
    const torch::NoGradGuard guard;
    EXPECT_FALSE(model(x).requires_grad());
  }
  {
    const c10::InferenceMode guard;  // copies that are made here can be trained later
    EXPECT_TRUE((DataParallel{net, host_list(4)}(x).is_inference()));
  }
  const DataParallel first{net, host_list(2)};
  {
    const c10::InferenceMode guard;
    (void)first(x);
  }
  first(x).sum().backward();
  EXPECT_TRUE(net->fc1->weight.grad().defined());
}

TEST(TorchDataParallel, D21RefusesNoDevices) {
  EXPECT_TRUE(throws<ls::ValueError>(
      [] { DataParallel(std::make_shared<Mlp>(), std::vector<ls::Device>()); }, "one device"));
  EXPECT_TRUE(throws<ls::DeviceError>(
      [] {
        DataParallel(std::make_shared<Mlp>(), {"cuda:0", "cuda:999"});
      },
      "does not exist"));
}

TEST(TorchDataParallel, D23StepsAsOneDeviceDoes) {
  struct Net : nn::Cloneable<Net> {
    nn::LSTM lstm{nullptr};
    Net() { reset(); }
    void reset() override {
      lstm = register_module("lstm", nn::LSTM(nn::LSTMOptions(3, 4).batch_first(true)));
      to(torch::kFloat64);
    }
    torch::Tensor forward(const torch::Tensor& x) { return std::get<0>(lstm(x)); }
  };
  const auto net = std::make_shared<Net>(), plain = clone(net);
  const DataParallel model{net, host_list(2)};
  torch::optim::SGD mine(net->parameters(), 0.1), theirs(plain->parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    const torch::Tensor x = torch::randn({4, 5, 3}, torch::kFloat64);
    mine.zero_grad();
    theirs.zero_grad();
    model(x).pow(2).mean().backward();
    plain->forward(x).pow(2).mean().backward();
    EXPECT_TRUE(same_grads(*net, *plain));
    mine.step();
    theirs.step();
  }
}

TEST(TorchDataParallel, D26TrainsConvolutions) {
  struct Net : nn::Cloneable<Net> {
    nn::Conv2d conv{nullptr};
    nn::BatchNorm2d norm{nullptr};
    nn::Linear fc{nullptr};
    Net() { reset(); }
    void reset() override {
      conv = register_module("conv", nn::Conv2d(1, 2, 3));
      norm = register_module("norm", nn::BatchNorm2d(2));
      fc = register_module("fc", nn::Linear(18, 4));
      to(torch::kFloat64);
    }
    torch::Tensor forward(const torch::Tensor& x) {
      return fc(torch::relu(norm(conv(x))).flatten(1));
    }
  };
  const auto net = std::make_shared<Net>(), plain = clone(net);
  net->norm->eval();  // one layer alone: the others' modes are their own
  plain->norm->eval();
  const DataParallel model{net, host_list(3), {.split = ls::Split::balanced}};
  torch::optim::SGD mine(net->parameters(), 0.1), theirs(plain->parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    const torch::Tensor x = torch::randn({7, 1, 5, 5}, torch::kFloat64);
    mine.zero_grad();
    theirs.zero_grad();
    model(x).pow(2).mean().backward();
    plain->forward(x).pow(2).mean().backward();
    EXPECT_TRUE(same_grads(*net, *plain));
    mine.step();
    theirs.step();
  }
}

TEST(TorchDataParallel, R06FollowsTheBuffersOfTheModule) {
  nn::BatchNorm1d net(3);
  DataParallel model{net, host_list(3)};
  (void)model(torch::randn({6, 3}));
  model.eval();
  const torch::Tensor x = torch::randn({6, 3});
  EXPECT_TRUE(torch::equal(model(x), net->forward(x)));
}

TEST(TorchDataParallel, R06AndX04KeepsTheBuffersOfTheFirstReplica) {
  const torch::Tensor x = torch::randn({6, 3});
  const auto statistics = [&](ls::ReplicaBuffers buffers) {
    nn::BatchNorm1d net(3);
    const DataParallel model{net, host_list(2), {.buffers = buffers}};
    (void)model(x);
    (void)model(x);
    EXPECT_EQ(net->num_batches_tracked.item<std::int64_t>(), 2);
    return net->running_mean;
  };
  const auto after_two = [](const torch::Tensor& rows) { return rows.mean(0) * 0.19; };
  EXPECT_TRUE(close(statistics(ls::ReplicaBuffers::first), after_two(x.slice(0, 0, 3)), 1e-6));
  EXPECT_TRUE(close(statistics(ls::ReplicaBuffers::merged), after_two(x), 1e-6));
  EXPECT_TRUE(
      throws<ls::ValueError>([&] { statistics(ls::ReplicaBuffers::synchronized); }, "merged"));
}

// Its batch_norm saves the running statistics for backward, and changes them without counting that.
struct Normalized : nn::Cloneable<Normalized> {
  nn::Linear fc{nullptr};
  nn::BatchNorm1d norm{nullptr};
  Normalized() { reset(); }
  void reset() override {
    fc = register_module("fc", nn::Linear(4, 3));
    norm = register_module("norm", nn::BatchNorm1d(3));
    to(torch::kFloat64);
  }
  torch::Tensor forward(const torch::Tensor& x) { return norm(fc(x)); }
};

TEST(TorchDataParallel, DifferentiatesWhatSeveralForwardsHaveNormalized) {
  const torch::Tensor a = torch::randn({6, 4}, torch::kFloat64);
  const torch::Tensor b = torch::randn({6, 4}, torch::kFloat64);
  for (const auto buffers : {ls::ReplicaBuffers::first, ls::ReplicaBuffers::merged}) {
    const auto net = std::make_shared<Normalized>(), plain = clone(net);
    DataParallel model{net, host_list(2), {.buffers = buffers}};
    const torch::Tensor y = model(a), z = model(b);
    model.eval();
    (void)model(a);
    (y.pow(2).sum() + z.pow(3).sum()).backward();
    const auto by_halves = [&](const torch::Tensor& x) {
      return torch::cat({plain->forward(x.slice(0, 0, 3)), plain->forward(x.slice(0, 3, 6))});
    };
    (by_halves(a).pow(2).sum() + by_halves(b).pow(3).sum()).backward();
    EXPECT_TRUE(same_grads(*net, *plain));
  }
}

// Writes into a buffer that backward needs.
struct Decaying : nn::Cloneable<Decaying> {
  torch::Tensor w, rate;
  bool writes = false;
  Decaying() { reset(); }
  void reset() override {
    w = register_parameter("w", f64({1, 2}, {2}));
    rate = register_buffer("rate", f64({1, 1}, {2}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    if (writes) rate.add_(x.mean());
    return x * w * rate;
  }
};

TEST(TorchDataParallel, ReportsABufferThatIsChangedBeforeBackward) {
  const auto net = std::make_shared<Decaying>();
  const DataParallel model{net, host_list(2)};
  const torch::Tensor y = model(torch_x5()).slice(0, 3, 5).sum();  // of the copy alone
  net->rate.mul_(2);
  EXPECT_TRUE(torch::equal(model(torch_x5()), net->forward(torch_x5())));
  EXPECT_TRUE(throws<c10::Error>([&] { y.backward(); }, "inplace"));

  net->writes = true;
  const DataParallel merging{net, host_list(2), {.buffers = ls::ReplicaBuffers::merged}};
  const torch::Tensor z = merging(torch_x5()).sum();
  EXPECT_TRUE(throws<c10::Error>([&] { z.backward(); }, "inplace"));
}

TEST(TorchDataParallel, MergesABufferOfTwoNamesOnce) {
  struct Net : nn::Cloneable<Net> {
    nn::BatchNorm1d norm{nullptr};
    Net() { reset(); }
    void reset() override {
      norm = register_module("norm", nn::BatchNorm1d(2));
      register_module("again", norm);
      to(torch::kFloat64);
    }
    torch::Tensor forward(const torch::Tensor& x) { return norm(x); }
  };
  const auto net = std::make_shared<Net>();
  const torch::Tensor x = torch::randn({6, 2}, torch::kFloat64);
  (void)DataParallel{net, host_list(2), {.buffers = ls::ReplicaBuffers::merged}}(x);
  EXPECT_TRUE(close(net->norm->running_mean, x.mean(0) * 0.1));
}

TEST(TorchDataParallel, TakesSequentialsWhoseModulesHaveNames) {
  struct Net : nn::Cloneable<Net> {
    nn::Sequential layers{nullptr};
    Net() { reset(); }
    void reset() override {
      layers = register_module(
          "layers",
          nn::Sequential({{"in", nn::Linear(6, 6)}, {"1", nn::Tanh()}, {"out", nn::Linear(6, 6)}}));
      to(torch::kFloat64);
    }
    torch::Tensor forward(const torch::Tensor& x) { return layers->forward(x); }
  };
  const auto net = std::make_shared<Net>();
  const torch::Tensor x = torch::randn({4, 6}, torch::kFloat64);
  const auto grads = [&](const torch::Tensor& y) {
    return torch::autograd::grad({y.pow(2).sum()}, net->parameters());
  };
  const auto mine = grads(DataParallel{net, host_list(2)}(x)), theirs = grads(net->forward(x));
  for (std::size_t i = 0; i < mine.size(); ++i) EXPECT_TRUE(close(mine[i], theirs[i])) << i;
}

TEST(TorchDataParallel, KeepsTheGradientsOfTwoOutputsOfOneNodeApart) {
  struct Net : nn::Module {
    torch::Tensor a, b;
    explicit Net(const torch::Tensor& both = torch::ones({2, 2}, torch::kFloat64)) {
      const std::vector<torch::Tensor> rows = both.unbind();
      a = register_buffer("a", rows[0]);
      b = register_buffer("b", rows[1]);
    }
    torch::Tensor forward(const torch::Tensor& x) { return x * a + x.pow(2) * b; }
  };
  const torch::Tensor both = f64({1, 2, 3, 4}, {2, 2}).requires_grad_();
  const auto net = std::make_shared<Net>(both);
  const DataParallel model{net, host_list(2), [] { return std::make_shared<Net>(); }};
  const auto grad = [&](const torch::Tensor& y) {
    return torch::autograd::grad({y.sum()}, {both})[0];
  };
  EXPECT_TRUE(close(grad(model(torch_x5())), grad(net->forward(torch_x5()))));
}

// Tied parameters, a frozen one, one that is unused, one that is absent, a buffer that is trained,
// and a tensor from outside.
struct Special : nn::Cloneable<Special> {
  torch::Tensor a, tied, frozen, unused, buffer, outside;
  bool twice = false;

  Special() { reset(); }
  void reset() override {
    a = register_parameter("a", f64({2, 3}, {2}));
    tied = register_parameter("tied", a);
    frozen = register_parameter("frozen", f64({5, 7}, {2}), false);
    unused = register_parameter("unused", f64({1}, {1}));
    register_parameter("absent", {}, false);
    buffer = register_buffer("buffer", f64({1, 2}, {2}));
    buffer.set_requires_grad(true);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = (x * a + frozen) * tied * buffer;
    if (outside.defined()) y = y * outside;
    return twice ? y + y : y;
  }
};

TEST(TorchDataParallel, R02R07R11AndR12TreatsSpecialTensorsAsThePlainModule) {
  for (const bool outside : {false, true}) {
    const auto net = std::make_shared<Special>(), plain = clone(net);
    plain->frozen.set_requires_grad(false);
    const torch::Tensor leaf = f64({3, 4}, {2}).requires_grad_();
    const torch::Tensor other = leaf.clone().detach().requires_grad_();
    if (outside) net->outside = leaf * 2, plain->outside = other * 2;
    DataParallel model{net, host_list(2)};
    for (int round = 0; round < 2; ++round) {
      const torch::Tensor y = model(torch_x5());
      // What is trained and no parameter is out of the one node's reach.
      EXPECT_EQ(runs_in_parallel(y), !outside);
      y.pow(2).sum().backward({}, true);
      y.sum().backward();
      const torch::Tensor z = plain->forward(torch_x5());
      z.pow(2).sum().backward({}, true);
      z.sum().backward();
      EXPECT_TRUE(same_grads(*net, *plain, 1e-10));
      EXPECT_TRUE(close(net->buffer.grad(), plain->buffer.grad(), 1e-10));
      if (outside) {
        EXPECT_TRUE(close(leaf.grad(), other.grad(), 1e-10));
        net->outside = leaf * 3, plain->outside = other * 3;
        model.renew();
      }
    }
    EXPECT_FALSE(net->unused.grad().defined());
    EXPECT_FALSE(net->frozen.grad().defined());
  }
}

TEST(TorchDataParallel, DifferentiatesWhatOneReplicaAloneHas) {
  const auto net = std::make_shared<Special>();
  const DataParallel model{net, host_list(2)};
  (void)model(torch_x5());
  const torch::Tensor leaf = f64({3, 4}, {2}).requires_grad_();
  net->outside = leaf;  // the copy does not have it
  const torch::Tensor y = model(torch_x5());
  EXPECT_FALSE(runs_in_parallel(y));
  y.sum().backward();
  const torch::Tensor expected =
      torch::autograd::grad({net->forward(torch_x5().slice(0, 0, 3)).sum()}, {leaf})[0];
  EXPECT_TRUE(close(leaf.grad(), expected));
}

TEST(TorchDataParallel, FollowsWhatIsFrozenAndThawed) {
  const auto net = std::make_shared<Mlp>();
  const DataParallel model{net, host_list(2)};
  const torch::Tensor x = torch::randn({4, 6}, torch::kFloat64);
  const auto trained = [&] {
    net->zero_grad(/*set_to_none=*/true);
    model(x).sum().backward();
    return net->fc1->weight.grad().defined();
  };
  EXPECT_TRUE(trained());
  net->fc1->weight.set_requires_grad(false);
  EXPECT_FALSE(trained());
  EXPECT_TRUE(net->fc1->bias.grad().defined());
  net->fc1->weight.set_requires_grad(true);
  EXPECT_TRUE(trained());
}

TEST(TorchDataParallel, X03TakesAnyPartOfTheResults) {
  const auto net = std::make_shared<Mlp>(), plain = clone(net);
  const ls::libtorch::DataParallelModel model{net, host_list(2)};
  const torch::Tensor x = torch::randn({4, 6}, torch::kFloat64);
  model(x)[1].sum().backward();
  plain->forward(x.slice(0, 2, 4)).sum().backward();
  EXPECT_TRUE(same_grads(*net, *plain));
}

TEST(TorchDataParallel, RunsAGraphAsOftenAsItIsKept) {
  const auto net = std::make_shared<Mlp>(), plain = clone(net);
  const DataParallel model{net, host_list(2)};
  const torch::Tensor x = torch::randn({4, 6}, torch::kFloat64);
  const torch::Tensor y = model(x).pow(2).sum(), z = plain->forward(x).pow(2).sum();
  y.backward({}, /*retain_graph=*/true);
  y.backward();
  z.backward({}, true);
  z.backward();
  EXPECT_TRUE(same_grads(*net, *plain));
  EXPECT_TRUE(throws<c10::Error>([&] { y.backward(); }, "second time"));
}

struct KeepsHidden : Mlp {
  torch::Tensor hidden;
  torch::Tensor forward(const torch::Tensor& x) { return fc2(hidden = torch::tanh(fc1(x))); }
};

TEST(TorchDataParallel, DifferentiatesActivationsThatTheModuleKeeps) {
  const auto net = std::make_shared<KeepsHidden>();
  const auto plain = clone(std::shared_ptr<Mlp>(net));
  const DataParallel<KeepsHidden> model{net, host_list(2),
                                        [] { return std::make_shared<KeepsHidden>(); }};
  const torch::Tensor x = torch::randn({4, 6}, torch::kFloat64);
  const torch::Tensor y = model(x);
  EXPECT_TRUE(runs_in_parallel(y));
  (y.sum() + net->hidden.pow(2).sum()).backward();
  const torch::Tensor hidden = torch::tanh(plain->fc1(x));
  (plain->fc2(hidden).sum() + hidden.slice(0, 0, 2).pow(2).sum()).backward();
  EXPECT_TRUE(same_grads(*net, *plain));
}

TEST(TorchDataParallel, RunsSeveralForwardsBeforeOneBackward) {
  const auto net = std::make_shared<Mlp>(), plain = clone(net);
  const DataParallel model{net, host_list(3)};
  const torch::Tensor a = torch::randn({4, 6}, torch::kFloat64);
  const torch::Tensor b = torch::randn({2, 6}, torch::kFloat64);
  (model(a).sum() + model(b).pow(2).sum()).backward();
  (plain->forward(a).sum() + plain->forward(b).pow(2).sum()).backward();
  EXPECT_TRUE(same_grads(*net, *plain));
}

// A recurrence: its arguments may come from itself, and from one another.
struct Recurrent : nn::Cloneable<Recurrent> {
  nn::Linear fc{nullptr};
  Recurrent() { reset(); }
  void reset() override {
    fc = register_module("fc", nn::Linear(4, 4));
    to(torch::kFloat64);
  }
  torch::Tensor forward(const torch::Tensor& state, const torch::Tensor& scale) {
    return torch::tanh(fc(state)) * scale;
  }
};

TEST(TorchDataParallel, DifferentiatesCallsInAChain) {
  const auto net = std::make_shared<Recurrent>(), plain = clone(net);
  const DataParallel model{net, host_list(2)};
  const ls::libtorch::DataParallelModel divided{net, host_list(2)};
  const torch::Tensor x = torch::randn({5, 4}, torch::kFloat64);
  const torch::Tensor one = torch::scalar_tensor(1.0, torch::kFloat64);
  const auto slope = [&](const auto& run) {
    const torch::Tensor leaf = f64({0.5}, {1}).requires_grad_();
    const torch::Tensor scale = leaf.exp().squeeze();
    run(scale).pow(2).sum().backward();
    return leaf.grad();
  };
  const auto expect_same = [&](const auto& mine, const auto& theirs) {
    net->zero_grad();
    plain->zero_grad();
    EXPECT_TRUE(close(slope(mine), slope(theirs)));
    EXPECT_TRUE(same_grads(*net, *plain));
  };
  expect_same([&](const torch::Tensor& scale) { return model(model(x, scale), scale); },
              [&](const auto& scale) { return plain->forward(plain->forward(x, scale), scale); });
  expect_same([&](const torch::Tensor& scale) { return model(x * scale, scale); },
              [&](const torch::Tensor& scale) { return plain->forward(x * scale, scale); });
  expect_same(
      [&](const torch::Tensor& scale) {
        return ls::gather(divided(divided(x, one), scale), "cpu:0");
      },
      [&](const torch::Tensor& scale) { return plain->forward(plain->forward(x, one), scale); });
}

TEST(TorchDataParallel, DifferentiatesAParameterThatACopyTakesFromTheModule) {
  struct Tied : nn::Cloneable<Tied> {
    nn::Linear fc{nullptr};
    torch::Tensor weight;  // the copies have the module's here
    Tied() {
      reset();
      weight = fc->weight;
    }
    void reset() override {
      fc = register_module("fc", nn::Linear(4, 4));
      to(torch::kFloat64);
    }
    torch::Tensor forward(const torch::Tensor& x) { return torch::linear(fc(x).tanh(), weight); }
  };
  const auto net = std::make_shared<Tied>();
  const DataParallel model{net, host_list(2)};
  const torch::Tensor x = torch::randn({5, 4}, torch::kFloat64);
  const auto grad = [&](const torch::Tensor& y) {
    return torch::autograd::grad({y.pow(2).sum()}, {net->fc->weight})[0];
  };
  EXPECT_TRUE(close(grad(model(x)), grad(net->forward(x))));
}

TEST(TorchDataParallel, RunsHooksOfParametersOnceWithTheSum) {
  const auto net = std::make_shared<TorchL0>();
  const DataParallel model{net, host_list(2)};
  int calls = 0;
  net->bias.register_hook([&](const torch::Tensor& grad) {
    ++calls;
    return grad * 10;
  });
  model(torch_x5()).sum().backward();
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(torch::equal(net->bias.grad(), f64({50, 50}, {2})));
}

TEST(TorchDataParallel, RetainsTheGradientsOfArguments) {
  const auto net = std::make_shared<TorchL0>();
  const ls::libtorch::DataParallelModel model{net, host_list(2)};
  const torch::Tensor x = torch_x5().requires_grad_();
  const auto parts = ls::scatter(x * 2, host_list(2));
  for (torch::Tensor part : parts) part.retain_grad();
  const auto outputs = model(parts);
  EXPECT_EQ(outputs[1].grad_fn()->name(), "lockstep::ParallelBackward");
  (outputs[0].sum() + outputs[1].sum()).backward();
  for (const torch::Tensor& part : parts) {
    EXPECT_TRUE(torch::equal(part.grad(), f64({4, 6}, {2}).expand_as(part)));
  }
  EXPECT_TRUE(torch::equal(x.grad(), f64({8, 12}, {2}).expand_as(x)));
}

TEST(TorchDataParallel, ReportsAParameterThatIsChangedBeforeBackward) {
  const auto net = std::make_shared<Mlp>();
  const DataParallel model{net, host_list(2)};
  const torch::Tensor x = torch::randn({4, 6}, torch::kFloat64);
  const torch::Tensor y = model(x).sum();
  {
    const torch::NoGradGuard guard;
    net->fc2->weight.mul_(2);
  }
  EXPECT_TRUE(throws<c10::Error>([&] { y.backward(); }, "inplace"));
  EXPECT_TRUE(torch::allclose(model(x), net->forward(x)));
}

// Counts what it is asked for.
struct Counted : nn::Module {
  static inline int made = 0;
  nn::Linear fc;
  double scale = 1;

  explicit Counted(std::int64_t width = 2) : fc(2, width) {
    ++made;
    register_module("fc", fc);
  }
  torch::Tensor forward(const torch::Tensor& x) { return fc(x) * scale; }
};

TEST(TorchDataParallel, MakesEachCopyOnceWithoutOtherRandomNumbers) {
  Counted::made = 0;
  const auto net = std::make_shared<Counted>();
  DataParallel model{net, host_list(3), [] { return std::make_shared<Counted>(); }};
  const torch::Tensor x = torch::randn({6, 2});
  torch::manual_seed(1);
  const double expected = torch::rand(1).item<double>();
  torch::manual_seed(1);
  for (int call = 0; call < 3; ++call) EXPECT_TRUE(torch::equal(model(x), net->forward(x)));
  EXPECT_EQ(torch::rand(1).item<double>(), expected);
  EXPECT_EQ(Counted::made, 3);  // the module, and a copy for each other device

  // A plain attribute is the copies' after renew().
  net->scale = 2;
  EXPECT_FALSE(torch::equal(model(x), net->forward(x)));
  model = DataParallel{net, host_list(3), [&] {
                         const auto copy = std::make_shared<Counted>();
                         copy->scale = net->scale;
                         return copy;
                       }};
  net->scale = 3;
  EXPECT_TRUE(torch::equal(model(x), net->forward(x)));
  net->scale = 4;
  model.renew();
  EXPECT_TRUE(torch::equal(model(x), net->forward(x)));
}

TEST(TorchDataParallel, RefusesModulesThatItCannotCopy) {
  const torch::Tensor x = torch::randn({6, 2});
  const auto net = std::make_shared<Counted>();
  EXPECT_TRUE(throws<ls::ModuleError>(
      [&] {
        DataParallel{net, host_list(2)}(x);
      },
      "torch::nn::Cloneable", "factory"));
  const auto wider = [] { return std::make_shared<Counted>(3); };
  EXPECT_TRUE(torch::equal(DataParallel(net, host_list(2), wider)(x), net->forward(x)));
  const auto same = [&] { return net; };
  EXPECT_TRUE(throws<ls::ModuleError>([&] { DataParallel(net, host_list(2), same)(x); }, "new"));
  const auto one = [other = std::make_shared<Counted>()] { return other; };
  EXPECT_TRUE(torch::equal(DataParallel(net, host_list(2), one)(x), net->forward(x)));
  EXPECT_TRUE(throws<ls::ModuleError>([&] { DataParallel(net, host_list(3), one)(x); }, "new"));
  struct Twin : Counted {};
  struct Other : nn::Module {
    torch::Tensor scale;
  };
  const auto twin = [] { return std::make_shared<Twin>(); };
  EXPECT_TRUE(throws<ls::ModuleError>([&] { DataParallel(net, host_list(2), twin)(x); },
                                      "the factory for ", "Twin"));
  const auto other = [] { return std::make_shared<Other>(); };
  EXPECT_TRUE(throws<ls::ModuleError>([&] { DataParallel(net, host_list(2), other)(x); },
                                      "the factory for ", "Other"));
  EXPECT_TRUE(throws<ls::ModuleError>(
      [] { DataParallel(std::shared_ptr<Counted>(), host_list(2)); }, "null"));

  const auto shallow = [&] { return std::make_shared<Counted>(*net); };
  EXPECT_TRUE(throws<ls::ModuleError>([&] { DataParallel(net, host_list(2), shallow)(x); },
                                      "own parameter \"fc.weight\""));
  EXPECT_TRUE(net->fc->weight.is_leaf());
  struct Table : nn::Module {
    torch::Tensor values;
    explicit Table(const torch::Tensor& from) : values(register_buffer("values", from)) {}
    torch::Tensor forward(const torch::Tensor& in) { return in * values; }
  };
  const auto table = std::make_shared<Table>(torch::ones({2}));
  const auto sharing = [&] { return std::make_shared<Table>(table->values); };
  EXPECT_TRUE(throws<ls::ModuleError>([&] { DataParallel(table, host_list(2), sharing)(x); },
                                      "own buffer \"values\""));

  struct Untied : nn::Cloneable<Untied> {
    torch::Tensor a, b;
    Untied() { reset(); }
    void reset() override {
      a = register_parameter("a", torch::ones(1));
      b = register_parameter("b", a);
    }
    torch::Tensor forward(const torch::Tensor& x) { return x * a * b; }
  };
  const auto untied = std::make_shared<Untied>();
  untied->b = untied->register_parameter("c", torch::ones(1));
  EXPECT_TRUE(throws<ls::ModuleError>([&] { DataParallel(untied, host_list(2))(x); }, "copied"));
}

TEST(TorchDataParallel, AFactoryThatHasFailedIsCalledAgain) {
  const auto net = std::make_shared<Counted>();
  int calls = 0;
  DataParallel model{net, host_list(3), [&calls] {
                       if (++calls == 2) throw std::runtime_error("no second copy");
                       return std::make_shared<Counted>();
                     }};
  const torch::Tensor x = torch::randn({6, 2});
  EXPECT_TRUE(throws<std::runtime_error>([&] { (void)model(x); }, "no second copy"));
  EXPECT_TRUE(torch::equal(model(x), net->forward(x)));
  EXPECT_EQ(calls, 4);
}

TEST(TorchDataParallel, RefusesAParameterThatIsReplaced) {
  const auto net = std::make_shared<TorchL0>();
  DataParallel model{net, host_list(2)};
  (void)model(torch_x5());
  net->weight = net->named_parameters()["weight"].detach().clone().requires_grad_();
  EXPECT_TRUE(torch::equal(model(torch_x5()), torch_y5()));
  // What is written into a tensor is followed.
  net->named_parameters()["bias"].set_data(f64({1, 2}, {2}));
  EXPECT_TRUE(torch::equal(model(torch_x5()), net->forward(torch_x5())));
  net->register_buffer("late", torch::ones(1));
  EXPECT_TRUE(throws<ls::ModuleError>([&] { model(torch_x5()); }, "renew()"));

  const auto other = std::make_shared<ls::testing::TorchReplaceable>();
  DataParallel wrapped{other, host_list(2),
                       [] { return std::make_shared<ls::testing::TorchReplaceable>(); }};
  (void)wrapped(torch_x5());
  other->replace();
  EXPECT_TRUE(throws<ls::ModuleError>([&] { wrapped(torch_x5()); },
                                      "parameter \"weight\" has been replaced", "renew()"));
  wrapped.renew();
  EXPECT_TRUE(torch::equal(wrapped(torch_x5()), other->forward(torch_x5())));
}

TEST(TorchDataParallel, RefusesASubModuleThatIsReplacedOrAdded) {
  struct Net : nn::Module {
    nn::Sequential act{nn::ReLU()};
    Net() { register_module("act", act); }
    torch::Tensor forward(const torch::Tensor& x) { return act->forward(x); }
  };
  const auto refused = [](const auto& call) {
    return throws<ls::ModuleError>(call, "a sub-module has been replaced", "renew()");
  };
  const auto net = std::make_shared<Net>();
  const DataParallel model{net, host_list(2), [] { return std::make_shared<Net>(); }};
  EXPECT_TRUE(torch::equal(model(torch_x5()), torch::relu(torch_x5())));
  net->act = nn::Sequential(nn::Tanh());
  net->replace_module("act", net->act);
  EXPECT_TRUE(refused([&] { model(torch_x5()); }));

  nn::Sequential layers{nn::ReLU()};
  DataParallel chain{layers, host_list(2)};
  (void)chain(torch_x5());
  layers->push_back(nn::Tanh());
  EXPECT_TRUE(refused([&] { chain(torch_x5()); }));
  chain.renew();
  EXPECT_TRUE(close(chain(torch_x5()), layers->forward(torch_x5())));
}

// Its clone() has two weights, of which the second has not been trained.
struct TiedByHandle : nn::Cloneable<TiedByHandle> {
  nn::Embedding in{nullptr};
  nn::Linear out{nullptr};
  TiedByHandle() { reset(); }
  void reset() override {
    in = register_module("in", nn::Embedding(7, 4));
    out = register_module("out", nn::Linear(4, 7));
    out->weight = in->weight;
  }
  torch::Tensor forward(const torch::Tensor& rows) { return out(in(rows)); }
};

TEST(TorchDataParallel, RefusesToCloneALayerWithAnotherOnesWeight) {
  const auto net = std::make_shared<TiedByHandle>();
  const torch::Tensor x = torch::tensor({0, 1, 2, 3, 4});
  const DataParallel cloning{net, host_list(2)};
  EXPECT_TRUE(throws<ls::ModuleError>([&] { cloning(x); }, "\"out\" has \"in.weight\"", "factory"));
  const DataParallel model{net, host_list(2), [] { return std::make_shared<TiedByHandle>(); }};
  const torch::Tensor y = model(x);
  EXPECT_TRUE(torch::allclose(y, net->forward(x)));
  const auto grad = [&](const torch::Tensor& z) {
    return torch::autograd::grad({z.pow(2).sum()}, {net->in->weight})[0];
  };
  EXPECT_TRUE(torch::allclose(grad(y), grad(net->forward(x))));

  // Two that convolve by one weight, and one that has the other's transposed.
  struct Back : nn::Cloneable<Back> {
    nn::Conv1d in{nullptr};
    nn::ConvTranspose1d out{nullptr};
    Back() { reset(); }
    void reset() override {
      in = register_module("in", nn::Conv1d(2, 3, 1));
      out = register_module("out", nn::ConvTranspose1d(3, 2, 1));
      out->weight = in->weight;
    }
    torch::Tensor forward(const torch::Tensor& rows) { return out(in(rows)); }
  };
  struct Turned : nn::Cloneable<Turned> {
    nn::Linear in{nullptr}, out{nullptr};
    Turned() { reset(); }
    void reset() override {
      in = register_module("in", nn::Linear(2, 3));
      out = register_module("out", nn::Linear(3, 2));
      out->weight = in->weight.t();
    }
    torch::Tensor forward(const torch::Tensor& rows) { return out(in(rows)); }
  };
  const auto refused = [](const auto& tied, const torch::Tensor& rows) {
    return throws<ls::ModuleError>([&] { DataParallel(tied, host_list(2))(rows); },
                                   "\"out\" has \"in.weight\"", "factory");
  };
  EXPECT_TRUE(refused(std::make_shared<Back>(), torch::randn({4, 2, 3})));
  EXPECT_TRUE(refused(std::make_shared<Turned>(), torch::randn({4, 2})));

  // One that forward has computed, as of a normalised weight.
  struct Computed : nn::Cloneable<Computed> {
    nn::Linear fc{nullptr};
    Computed() { reset(); }
    void reset() override { fc = register_module("fc", nn::Linear(2, 2)); }
    torch::Tensor forward(const torch::Tensor& rows) {
      fc->weight = fc->named_parameters()["weight"] * 2;
      return fc(rows);
    }
  };
  const auto computed = std::make_shared<Computed>();
  const torch::Tensor rows = torch::randn({4, 2}), expected = computed->forward(rows);
  EXPECT_TRUE(torch::allclose(DataParallel(computed, host_list(2))(rows), expected));
}

// LibTorch does not show what a module has beside its registered layers, so this is noticed by what
// forward has used.
TEST(TorchDataParallel, WarnsOfACopyThatHasWeightsOfItsOwn) {
  struct OwnHandle : nn::Cloneable<OwnHandle> {
    nn::Linear first{nullptr};
    nn::Sequential layers{nullptr};
    OwnHandle() { reset(); }
    void reset() override {
      first = nn::Linear(2, 2);
      layers = register_module("layers", nn::Sequential(first, nn::ReLU()));
    }
    torch::Tensor forward(const torch::Tensor& x) { return first(x); }
  };
  const auto net = std::make_shared<OwnHandle>();
  const torch::Tensor x = torch::ones({4, 2});
  DataParallel cloning(net, host_list(2));
  {
    const ls::testing::CaughtWarnings warnings;
    cloning(x);
    EXPECT_EQ(warnings.count("replica 1 computes with a weight that is none"), 1);
  }
  DataParallel model(net, host_list(2), [] { return std::make_shared<OwnHandle>(); });
  const ls::testing::CaughtWarnings warnings;
  EXPECT_TRUE(close(model(x), net->forward(x)));
  EXPECT_EQ(warnings.count(), 0);
}

TEST(TorchDataParallel, D07RefusesAModuleOnAnotherDevice) {
  const auto net = std::make_shared<ls::testing::TorchReplaceable>();
  net->replace_by_one_elsewhere();
  EXPECT_TRUE(throws<ls::ModuleError>([&] { DataParallel(net, host_list(2)); },
                                      "on device cpu:0 (device_ids[0])",
                                      "meta (parameter \"bias\")"));
}

TEST(TorchDataParallel, RefusesAForwardThatWritesIntoParameters) {
  struct Net : TorchL0 {
    torch::Tensor forward(const torch::Tensor& x) {
      const torch::NoGradGuard guard;
      if (x.size(0) == 3) weight.add_(1);
      return x;
    }
  };
  const auto make = [] { return std::make_shared<Net>(); };
  const DataParallel<Net> model{make(), host_list(2), make};
  EXPECT_TRUE(throws<ls::ModuleError>([&] { model(torch_x5()); }, "weight", "share"));
}

TEST(TorchDataParallel, RefusesAForwardThatWritesIntoAnArgumentWithAGraph) {
  struct Net : nn::Cloneable<Net> {
    void reset() override {}
    torch::Tensor forward(torch::Tensor x) { return x.relu_(); }
  };
  const DataParallel model{std::make_shared<Net>(), host_list(2)};
  const torch::Tensor x = torch_x5();
  EXPECT_TRUE(torch::equal(model(x), torch::relu(torch_x5())));
  EXPECT_TRUE(throws<ls::Error>([&] { model(x.clone().requires_grad_() * 2); }, "replica 0",
                                "is being modified inplace"));
}

TEST(TorchDataParallel, FollowsAModuleToAnotherDtype) {
  const auto net = std::make_shared<Mlp>();
  const DataParallel model{net, host_list(2)};
  const torch::Tensor x = torch::randn({4, 6});
  (void)model(x.to(torch::kFloat64));
  net->to(torch::kFloat32);
  const torch::Tensor y = model(x);
  EXPECT_EQ(y.scalar_type(), torch::kFloat32);
  y.sum().backward();
  EXPECT_EQ(net->fc1->weight.grad().scalar_type(), torch::kFloat32);
}

TEST(TorchDataParallel, FollowsAModuleToOtherShapes) {
  const auto net = std::make_shared<Mlp>();
  const DataParallel model{net, host_list(2)};
  const torch::Tensor x = torch::randn({4, 6}, torch::kFloat64);
  model(x).sum().backward();
  net->zero_grad(/*set_to_none=*/true);
  net->fc2->weight.set_data(torch::randn({2, 5}, torch::kFloat64));
  net->fc2->bias.set_data(torch::zeros({2}, torch::kFloat64));
  const torch::Tensor y = model(x);
  EXPECT_TRUE(close(y, net->forward(x)));
  y.sum().backward();
  EXPECT_TRUE(close(net->fc2->bias.grad(), f64({4, 4}, {2})));
}

struct SeesThreads : nn::Cloneable<SeesThreads> {
  void reset() override {}
  torch::Tensor forward(const torch::Tensor& x) { return x * at::get_num_threads(); }
};

TEST(TorchDataParallel, SharesTheIntraopThreadsAmongTheReplicas) {
  const int before = at::get_num_threads();
  const DataParallel model{std::make_shared<SeesThreads>(), host_list(2)};
  const torch::Tensor x = torch::ones({4}, torch::kInt64);
  for (const int threads : {4, 3, 1}) {
    at::set_num_threads(threads);
    EXPECT_TRUE(torch::equal(model(x), x * std::max(1, threads / 2))) << threads;
    EXPECT_EQ(at::get_num_threads(), threads);
  }
  at::set_num_threads(before);

  using ls::libtorch::detail::spinning_advice;
  EXPECT_TRUE(spinning_advice(2, nullptr, nullptr).has_value());
  EXPECT_TRUE(spinning_advice(2, "active", nullptr).has_value());
  EXPECT_FALSE(spinning_advice(2, "PASSIVE", nullptr).has_value());
  EXPECT_FALSE(spinning_advice(2, nullptr, "0").has_value());
  EXPECT_FALSE(spinning_advice(1, nullptr, nullptr).has_value());
}

TEST(TorchDataParallel, R14FollowsTheModesOfTheModule) {
  struct Net : nn::Cloneable<Net> {
    nn::Dropout drop{nullptr};
    void reset() override { drop = register_module("drop", nn::Dropout(0.5)); }
    Net() { reset(); }
    torch::Tensor forward(const torch::Tensor& x) { return drop(x); }
  };
  const auto net = std::make_shared<Net>();
  DataParallel model{net, host_list(2)};
  const torch::Tensor x = torch::ones({4, 100});
  EXPECT_FALSE(torch::equal(model(x).slice(0, 2, 4), x.slice(0, 2, 4)));
  model.eval();
  EXPECT_TRUE(torch::equal(model(x), x));
  net->drop->train();
  EXPECT_FALSE(torch::equal(model(x).slice(0, 2, 4), x.slice(0, 2, 4)));
}

struct TakesAPair : nn::Cloneable<TakesAPair> {
  void reset() override {}
  at::Tensor forward(const std::pair<at::Tensor, at::Tensor>& both) {
    return both.first + both.second;
  }
};

TEST(TorchDataParallel, APairIsOneArgumentOnOneDeviceAndOnSeveral) {
  const std::pair both(torch_x5(), torch_y5());
  for (const int devices : {1, 2}) {
    const DataParallel model{std::make_shared<TakesAPair>(), host_list(devices)};
    EXPECT_TRUE(close(model(both), torch_x5() + torch_y5())) << devices;
  }
}

TEST(TorchDataParallel, TakesHoldersAndLists) {
  nn::Sequential net(nn::Linear(2, 3), nn::ReLU(), nn::Linear(3, 2));
  const DataParallel model{net, std::vector<at::Device>{at::kCPU, at::kCPU}};
  EXPECT_EQ(model.devices(), host_list(2));
  const torch::Tensor x = torch::randn({4, 2});
  EXPECT_TRUE(torch::allclose(model(x), net->forward(x)));
}

TEST(TorchDataParallelCriterion, E01ToE04WeighsTheLossesByRows) {
  const auto net = std::make_shared<Mlp>(), plain = clone(net);
  const ls::libtorch::DataParallelModel model{net, host_list(3)};
  const auto loss = [](const torch::Tensor& y, const torch::Tensor& t) {
    return torch::mse_loss(y, t);
  };
  ls::DataParallelCriterion criterion{loss};
  for (const std::int64_t rows : {10, 8, 1}) {
    const torch::Tensor x = torch::randn({rows, 6}, torch::kFloat64);
    const torch::Tensor t = torch::randn({rows, 3}, torch::kFloat64);
    const torch::Tensor mine = criterion(model(x), t), theirs = loss(plain->forward(x), t);
    EXPECT_NEAR(mine.item<double>(), theirs.item<double>(), 1e-12);
    mine.backward();
    theirs.backward();
    EXPECT_TRUE(same_grads(*net, *plain));
  }
}

TEST(TorchReplicate, R01R03AndR05MakesReplicasOfPointersAndHolders) {
  const auto net = std::make_shared<Mlp>(), plain = clone(net);
  auto replicas = ls::replicate(net, host_list(2));
  ASSERT_EQ(replicas.size(), 2u);
  EXPECT_EQ(replicas[0], net);
  const torch::Tensor x = torch::randn({4, 6}, torch::kFloat64);
  const auto outputs = ls::parallel_apply(replicas, ls::scatter(x, host_list(2)));
  ls::gather(outputs, "cpu:0").pow(2).sum().backward();
  plain->forward(x).pow(2).sum().backward();
  EXPECT_TRUE(same_grads(*net, *plain));

  nn::Linear layer(6, 2);
  auto layers = ls::replicate(layer, host_list(3));
  EXPECT_EQ(layers[0].ptr(), layer.ptr());
  EXPECT_TRUE(torch::equal(layers[2]->weight, layer->weight));
  EXPECT_FALSE(layers[2]->weight.is_leaf());
  const torch::Tensor f = x.to(torch::kFloat32);
  EXPECT_TRUE(torch::equal(ls::parallel_apply(layers, std::vector(3, f))[1], layer->forward(f)));
}

TEST(TorchReplicate, R08AndR09DetachesAllReplicas) {
  const auto net = std::make_shared<Mlp>();
  for (const auto& replica : ls::replicate(net, host_list(2), /*detach=*/true)) {
    for (const torch::Tensor& parameter : replica->parameters()) {
      EXPECT_FALSE(parameter.requires_grad());
    }
    EXPECT_TRUE(torch::equal(replica->fc1->weight, net->fc1->weight));
  }
  EXPECT_EQ(ls::replicate(net, host_list(2), true)[0]->fc1->weight.data_ptr(),
            net->fc1->weight.data_ptr());
  EXPECT_TRUE(ls::replicate(net, {}).empty());
}

}  // namespace torch_data_parallel_test
