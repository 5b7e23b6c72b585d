// SPDX-License-Identifier: Apache-2.0
#include <lockstep/nn/sync_batch_norm.hpp>

#include <lockstep/autograd/engine.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/nn/activation.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/nn/sequential.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/cat.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/parallel/distributed.hpp>
#include <lockstep/tensor/random.hpp>

#include "support/devices.hpp"
#include "support/expect_error.hpp"
#include "support/varied.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace lockstep {
namespace sync_batch_norm_test {

using distributed::ProcessGroup;
using testing::all_close;
using testing::first_devices;
using testing::throws;
using Rows = std::vector<std::int64_t>;

static_assert(Module<nn::SyncBatchNorm> && ForwardableWith<const nn::SyncBatchNorm, Tensor>);

constexpr double kTolerance = 1e-9;

Tensor varied(const Shape& shape, std::size_t seed, Device device = {}) {
  return testing::varied(shape, seed, device);
}

// How many rows each rank has.
const std::vector<Rows>& spreads() {
  static const std::vector<Rows> kinds = {{8},       {4, 4},       {1, 7},    {0, 8},
                                          {3, 0, 5}, {2, 2, 2, 2}, {1, 1, 6}, {7, 1, 0, 0}};
  return kinds;
}

std::int64_t rows_before(const Rows& rows, int rank) {
  return std::accumulate(rows.begin(), rows.begin() + rank, std::int64_t{0});
}

Tensor part(const Tensor& whole, const Rows& rows, const ProcessGroup& group) {
  const auto r = static_cast<std::size_t>(group.rank());
  return whole.narrow(0, rows_before(rows, group.rank()), rows[r]).to(group.device());
}

// Far from 0, where a variance from sums of squares would lose its digits.
Tensor values(const Shape& shape, std::size_t seed) { return varied(shape, seed) * 0.5 + 1000; }

template <class Layer>
void fill_parameters(const Layer& layer) {
  if (!layer.weight.defined()) return;
  const NoGradGuard guard;
  layer.weight.copy_(varied({layer.num_features}, 3, layer.weight.device()) + 2);
  layer.bias.copy_(varied({layer.num_features}, 4, layer.bias.device()));
}

// What two steps of a layer give on one rank.
struct Result {
  Tensor y;
  Tensor x_grad;
  Tensor weight_grad;
  Tensor bias_grad;
  Tensor running_mean;
  Tensor running_var;
};

template <class Layer>
Result two_steps(const Layer& layer, const Tensor& first, const Tensor& second,
                 const Tensor& weights) {
  (void)layer(first);
  const Tensor x = second.detach().clone().requires_grad_();
  const Tensor y = layer(x);
  (square(y) * weights).sum().backward();
  Result result{y.detach(), x.grad(), {}, {}, {}, {}};
  if (layer.weight.defined()) {
    result.weight_grad = layer.weight.grad();
    result.bias_grad = layer.bias.grad();
  }
  if (layer.running_mean.defined()) {
    result.running_mean = layer.running_mean;
    result.running_var = layer.running_var;
  }
  return result;
}

void expect_as_one_process(const Shape& shape, const nn::BatchNormOptions& options) {
  const Tensor first = values(shape, 0);
  const Tensor second = values(shape, 1);
  const Tensor weights = varied(shape, 2);
  const std::int64_t channels = shape[1];
  const nn::BatchNorm1d rows(channels, options);
  const nn::BatchNorm2d images(channels, options);
  fill_parameters(rows);
  fill_parameters(images);
  const Result whole = shape.size() == 4 ? two_steps(images, first, second, weights)
                                         : two_steps(rows, first, second, weights);
  for (const Rows& spread : spreads()) {
    SCOPED_TRACE(::testing::PrintToString(spread));
    distributed::run(first_devices(spread.size()), [&](const ProcessGroup& group) {
      nn::BatchNormOptions here = options;
      here.device = group.device();
      const nn::SyncBatchNorm layer(channels, here);
      fill_parameters(layer);
      const Result mine = two_steps(layer, part(first, spread, group), part(second, spread, group),
                                    part(weights, spread, group));
      EXPECT_TRUE(all_close(mine.y, part(whole.y, spread, group), kTolerance, kTolerance));
      EXPECT_TRUE(all_close(mine.x_grad, part(whole.x_grad, spread, group), kTolerance, 1e-8));
      if (mine.weight_grad.defined()) {
        group.all_reduce(mine.weight_grad).wait();
        group.all_reduce(mine.bias_grad).wait();
        EXPECT_TRUE(all_close(mine.weight_grad, whole.weight_grad, kTolerance, 1e-8));
        EXPECT_TRUE(all_close(mine.bias_grad, whole.bias_grad, kTolerance, 1e-8));
      }
      if (mine.running_mean.defined()) {
        EXPECT_TRUE(all_close(mine.running_mean, whole.running_mean, kTolerance));
        EXPECT_TRUE(all_close(mine.running_var, whole.running_var, kTolerance));
        EXPECT_EQ(layer.num_batches_tracked.item<std::int64_t>(), 2);
      }
    });
  }
}

TEST(SyncBatchNorm, IsABatchNormOverTheWholeBatch) {
  expect_as_one_process({8, 3}, {.dtype = Dtype::f64});
  expect_as_one_process({8, 2, 5}, {.momentum = 0.3, .dtype = Dtype::f64});
  expect_as_one_process({8, 3, 2, 4}, {.dtype = Dtype::f64});
}

TEST(SyncBatchNorm, WithoutParametersOrWithoutStatistics) {
  expect_as_one_process({8, 3}, {.affine = false, .dtype = Dtype::f64});
  expect_as_one_process({8, 3}, {.track_running_stats = false, .dtype = Dtype::f64});
}

TEST(SyncBatchNorm, SingleAndHalfPrecision) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    const nn::SyncBatchNorm layer{1, {.eps = 0, .device = group.device()}};
    const double r = group.rank();
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      const Tensor y = layer(full({2, 1}, 1 + 2 * r, {.dtype = dtype, .device = group.device()}));
      EXPECT_EQ(y.dtype(), dtype);
      EXPECT_EQ(y.to(Dtype::f64).to_vector<double>(), std::vector<double>(2, 2 * r - 1));
    }
  });
}

TEST(SyncBatchNorm, OneValueInAllIsRefusedOnEveryRank) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    nn::SyncBatchNorm layer{1, {.momentum = 0.5, .dtype = Dtype::f64}};
    const auto x = [](std::int64_t rows) { return full({rows, 1}, 5, {.dtype = Dtype::f64}); };
    EXPECT_TRUE(throws<ValueError>([&] { layer(x(group.rank())); }, "more than 1 value per channel",
                                   "1 value in all ranks"));
    const nn::SyncBatchNorm two{2};
    EXPECT_TRUE(throws<ValueError>([&] { two(ones({group.rank(), 2})); }, "1 value in all ranks"));
    (void)layer(x(0));  // nobody has any
    EXPECT_EQ(layer.running_mean.item(), 0);
    EXPECT_EQ(layer.running_var.item(), 1);
    EXPECT_EQ(layer(x(1)).numel(), 1);  // each has one
    EXPECT_EQ(layer.running_mean.item(), 2.5);
    EXPECT_EQ(layer.running_var.item(), 0.5);
    layer.num_batches_tracked = Buffer(full({}, 7));
    (void)layer(x(2));
    EXPECT_EQ(layer.num_batches_tracked.item(), 8) << "of whatever dtype";
  });
  distributed::run(first_devices(1), [](const ProcessGroup&) {
    const nn::SyncBatchNorm layer{1};
    EXPECT_TRUE(throws<ValueError>([&] { layer(ones({1, 1})); }, "more than 1 value per channel"));
  });
}

TEST(SyncBatchNorm, EvaluationCommunicatesNothing) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    nn::SyncBatchNorm layer{1, {.eps = 0}};
    nn::SyncBatchNorm untracked{1, {.eps = 0, .track_running_stats = false}};
    eval(layer);
    eval(untracked);
    if (group.rank() == 1) return;
    const Tensor x = tensor<float>({1, 3}).reshape({2, 1});
    EXPECT_EQ(layer(x).to_vector<float>(), (std::vector<float>{1, 3}));
    EXPECT_EQ(untracked(x).to_vector<float>(), (std::vector<float>{-1, 1}));
  });
}

TEST(SyncBatchNorm, SecondDerivativesPassThroughTheStatisticsOfAll) {
  const auto second = [](const auto& layer, const Tensor& part, const Tensor& weights) {
    const Tensor x = part.clone().requires_grad_();
    const Tensor y = layer(x);
    const Tensor loss = (square(y) * weights).sum();
    const Tensor grad = autograd::grad({loss}, {x}, {}, true, true)[0];
    // Weighted, since the gradients of a batch add up to 0.
    return autograd::grad({(square(grad) * weights).sum()}, {x})[0];
  };
  const Tensor x = varied({6, 2}, 3);
  const Tensor weights = varied({6, 2}, 4);
  const Tensor whole = second(nn::BatchNorm1d(2, {.dtype = Dtype::f64}), x, weights);
  const Rows spread{2, 1, 3};
  distributed::run(first_devices(3), [&](const ProcessGroup& group) {
    const nn::SyncBatchNorm layer{2, {.dtype = Dtype::f64, .device = group.device()}};
    EXPECT_TRUE(all_close(second(layer, part(x, spread, group), part(weights, spread, group)),
                          part(whole, spread, group), 1e-8, 1e-8));
  });
}

TEST(SyncBatchNorm, AGroupOfItsOwn) {
  distributed::run(first_devices(4), [](const ProcessGroup& group) {
    const ProcessGroup pair = group.new_group({0, 1});
    if (!pair) return;
    const nn::SyncBatchNorm layer{1, {.eps = 0, .device = group.device()}, pair};
    const double r = group.rank();
    EXPECT_EQ(layer(full({2, 1}, r, {.device = group.device()})).to_vector<float>(),
              std::vector<float>(2, static_cast<float>(2 * r - 1)));
  });
}

TEST(SyncBatchNorm, WithoutAGroupItSaysSo) {
  const nn::SyncBatchNorm layer{1};
  EXPECT_TRUE(throws<Error>([&] { layer(ones({2, 1})); }, "has not been initialized"));
}

TEST(SyncBatchNorm, RefusesToBeAReplicaAmongRanks) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    if (group.rank() == 1) return;
    DataParallel model{nn::SyncBatchNorm{1}, first_devices(2)};
    EXPECT_TRUE(throws<ValueError>([&] { model(ones({4, 1})); }, "replica"));
  });
}

TEST(SyncBatchNorm, OtherShapesAreRefusedBeforeAnythingIsSent) {
  const nn::SyncBatchNorm layer{3};
  EXPECT_TRUE(throws<ShapeError>([&] { layer(ones({3})); }, "SyncBatchNorm"));
  EXPECT_TRUE(throws<ShapeError>([&] { layer(ones({2, 4})); }, "3 channels, got [2, 4]"));
}

struct Net {
  nn::Linear fc1;
  nn::BatchNorm1d norm;
  nn::Linear fc2;

  Net() : Net(0) {}
  explicit Net(std::uint64_t seed)
      : fc1((manual_seed(seed), nn::Linear(4, 6, {.dtype = Dtype::f64}))),
        norm(6, {.dtype = Dtype::f64}),
        fc2(6, 2, {.dtype = Dtype::f64}) {}
  Tensor forward(const Tensor& x) const { return fc2(relu(norm(fc1(x)))); }
  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("fc1", self.fc1);
    visit("norm", self.norm);
    visit("fc2", self.fc2);
  }
};

// The loss is a sum, divided by the rows of all ranks.
template <class Model>
void train(Model& model, const std::vector<Parameter>& parameters, const Tensor& x,
           const Tensor& target, double divisor) {
  optim::SGD sgd{parameters, {.lr = 0.1, .momentum = 0.9}};
  for (int step = 0; step < 5; ++step) {
    sgd.zero_grad();
    (square(model.forward(x) - target).sum() / divisor).backward();
    sgd.step();
  }
}

TEST(ConvertSyncBatchNorm, ADistributedModelLearnsWhatOneProcessDoes) {
  const Tensor x = varied({9, 4}, 1);
  const Tensor target = varied({9, 2}, 2);
  Net alone(5);
  train(alone, parameters(alone), x, target, 9);
  for (const Rows& rows : {Rows{9}, Rows{4, 5}, Rows{3, 2, 4}, Rows{0, 8, 1}}) {
    SCOPED_TRACE(::testing::PrintToString(rows));
    Net first(5);
    distributed::run(first_devices(rows.size()), [&](const ProcessGroup& group) {
      Net net = group.rank() == 0 ? first : Net(6);
      nn::convert_sync_batchnorm(net);
      DistributedDataParallel model{net, group};
      train(model, model.parameters(), part(x, rows, group), part(target, rows, group),
            9.0 / group.size());
      const StateDict found = model.state_dict();
      const StateDict expected = state_dict(alone);
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_TRUE(all_close(found[i].tensor.to(Dtype::f64), expected[i].tensor.to(Dtype::f64),
                              1e-9, 1e-10))
            << expected[i].name;
      }
    });
  }
}

TEST(ConvertSyncBatchNorm, FindsEveryBatchNormAndKeepsItsState) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    struct Deep {
      nn::BatchNorm2d images{2};
      std::vector<nn::Sequential<nn::BatchNorm1d, nn::BatchNorm1d>> rows{
          nn::Sequential{nn::BatchNorm1d{1}, nn::BatchNorm1d{1}}};
      Tensor forward(const Tensor& x) const { return x; }
    };
    Deep deep;
    const Tensor weight = deep.images.weight;
    nn::convert_sync_batchnorm(deep, group);
    EXPECT_TRUE(deep.images.weight.is_same(weight));
    const Deep copy = deep;
    for (const auto* layer : {&copy.rows[0].get<0>(), &copy.rows[0].get<1>()}) {
      EXPECT_NE(layer->synchronized, nullptr);
    }
    EXPECT_NE(copy.images.synchronized, nullptr);
    const double r = group.rank();
    const Tensor y = copy.images(full({1, 2, 1, 1}, 2 * r));
    EXPECT_NEAR(y.to_vector<float>()[0], 2 * r - 1, 1e-4);
  });
}

TEST(ConvertSyncBatchNorm, AConstLayerIsNamed) {
  struct Fixed {
    const nn::BatchNorm1d norm{1};
    Tensor forward(const Tensor& x) const { return norm(x); }
  };
  Fixed fixed;
  EXPECT_TRUE(throws<ModuleError>([&] { nn::convert_sync_batchnorm(fixed); }, "\"norm\" is const"));
}

}  // namespace sync_batch_norm_test
}  // namespace lockstep
