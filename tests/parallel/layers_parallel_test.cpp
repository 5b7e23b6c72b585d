// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/nn/batch_norm.hpp>
#include <lockstep/nn/dropout.hpp>
#include <lockstep/nn/embedding.hpp>
#include <lockstep/nn/layer_norm.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/cat.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/parallel/parallel_apply.hpp>
#include <lockstep/parallel/replica_group.hpp>
#include <lockstep/parallel/replicate.hpp>
#include <lockstep/tensor/random.hpp>

#include "parallel/layers.hpp"
#include "support/devices.hpp"
#include "support/expect_error.hpp"
#include "support/varied.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ls = lockstep;
using ls::testing::all_close;
using ls::testing::f64;
using ls::testing::first_devices;
using ls::testing::throws;
using ls::testing::varied;
using ls::testing::varied_leaf;

namespace layers_parallel_test {

using Values = std::vector<double>;
using Counts = std::vector<std::int64_t>;

ls::nn::BatchNorm1d norm_of(std::int64_t features) {
  return ls::nn::BatchNorm1d{features, {.momentum = 0.5, .dtype = ls::Dtype::f64}};
}

TEST(BatchNormReplicas, AnEmptyBatchLeavesTheStatisticsAsTheyAre) {
  for (const auto buffers :
       {ls::ReplicaBuffers::first, ls::ReplicaBuffers::merged, ls::ReplicaBuffers::synchronized}) {
    ls::DataParallel model{norm_of(2), first_devices(2), {.buffers = buffers}};
    model(f64({1, 2, 3, 5, 8, 13, 21, 34}, {4, 2}));
    const Values mean = model.module().running_mean.to_vector<double>();
    const Values var = model.module().running_var.to_vector<double>();
    EXPECT_EQ(model(ls::zeros({0, 2}, {.dtype = ls::Dtype::f64})).sizes(), (ls::Shape{0, 2}));
    EXPECT_EQ(model.module().running_mean.to_vector<double>(), mean);
    EXPECT_EQ(model.module().running_var.to_vector<double>(), var);
  }
}

TEST(BatchNormReplicas, R06EachReplicaHasTheBuffersOnItsDevice) {
  const ls::nn::BatchNorm2d norm{3, {.device = "cpu:0"}};
  const auto replicas = ls::replicate(norm, first_devices(2));
  ASSERT_EQ(replicas.size(), 2U);
  for (int i = 0; i < 2; ++i) {
    const ls::nn::BatchNorm2d& replica = replicas[static_cast<std::size_t>(i)];
    const ls::Device device(ls::DeviceType::cpu, i);
    EXPECT_EQ(replica.running_mean.device(), device);
    EXPECT_EQ(replica.running_var.device(), device);
    EXPECT_EQ(replica.num_batches_tracked.device(), device);
    EXPECT_EQ(replica.num_batches_tracked.sizes(), ls::Shape{});
    EXPECT_EQ(replica.num_batches_tracked.dtype(), ls::Dtype::i64);
  }
}

TEST(BatchNormReplicas, X04TheOriginalsStatisticsMove) {
  const ls::nn::BatchNorm1d norm{1, {.momentum = 0.5, .dtype = ls::Dtype::f64, .device = "cpu:0"}};
  auto replicas = ls::replicate(norm, first_devices(2));
  ls::parallel_apply(replicas, std::vector<ls::Tensor>{f64({1, 3}, {2, 1}, "cpu:0"),
                                                       f64({10, 20}, {2, 1}, "cpu:1")});
  EXPECT_EQ(norm.running_mean.to_vector<double>(), Values{1});  // (0 + 2) / 2
  EXPECT_EQ(norm.running_var.to_vector<double>(), Values{1.5});
  EXPECT_EQ(norm.num_batches_tracked.to_vector<std::int64_t>(), Counts{1});
  EXPECT_EQ(replicas[1].running_mean.to_vector<double>(), Values{7.5});
}

// Rows 1, 3 | 10, 20: means 2 and 15, unbiased variances 2 and 50.
ls::Tensor two_pairs() { return f64({1, 3, 10, 20}, {4, 1}); }

TEST(BatchNormReplicas, X04TheFirstReplicasStatisticsStay) {
  ls::DataParallel model{norm_of(1), first_devices(2)};
  const ls::Tensor y = model(two_pairs());
  EXPECT_TRUE(all_close(y, f64({-1, 1, -1, 1}, {4, 1}, "cpu:0"), 1e-4)) << "each by its own rows";
  EXPECT_EQ(model.module().running_mean.to_vector<double>(), Values{1});
  EXPECT_EQ(model.module().running_var.to_vector<double>(), Values{1.5});
  EXPECT_EQ(model.module().num_batches_tracked.to_vector<std::int64_t>(), Counts{1});
  // The second forward starts from them in every replica.
  model(two_pairs());
  EXPECT_EQ(model.module().running_mean.to_vector<double>(), Values{1.5});
  EXPECT_EQ(model.module().num_batches_tracked.to_vector<std::int64_t>(), Counts{2});
}

TEST(BatchNormReplicas, MergedStatisticsAreTheReplicasMean) {
  ls::DataParallel model{norm_of(1), first_devices(2), {.buffers = ls::ReplicaBuffers::merged}};
  model(two_pairs());
  EXPECT_EQ(model.module().running_mean.to_vector<double>(), Values{(1 + 7.5) / 2});
  EXPECT_EQ(model.module().running_var.to_vector<double>(), Values{(1.5 + 25.5) / 2});
  EXPECT_EQ(model.module().num_batches_tracked.to_vector<std::int64_t>(), Counts{1});
}

TEST(BatchNormReplicas, D19OneRowHasNoVarianceUnlessEachReplicaHasTwo) {
  const ls::Tensor x = varied({3, 2}, 0, "cpu");
  ls::DataParallel plain{norm_of(2), first_devices(2)};
  EXPECT_TRUE(throws<ls::ValueError>([&] { plain(x); }, "replica 1", "cpu:1",
                                     "Expected more than 1 value per channel when training, got "
                                     "input size [1, 2]",
                                     ".split = ls::Split::chunk.at_least(2)", "or prefetch's"));
  ls::DataParallel model{norm_of(2), first_devices(2), {.split = ls::Split::chunk.at_least(2)}};
  EXPECT_EQ(model(x).sizes(), (ls::Shape{3, 2}));
  ls::DataParallel together{
      norm_of(2), first_devices(2), {.buffers = ls::ReplicaBuffers::synchronized}};
  EXPECT_TRUE(all_close(together(x), norm_of(2)(x).to(ls::Device("cpu:0")), 1e-10))
      << "statistics of the whole batch have three rows";
}

TEST(BatchNormReplicas, OneRowInAllHasNoVarianceWhereverItIs) {
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{1, 0, 0}, std::vector<std::int64_t>{0, 1, 0}}) {
    ls::DataParallel model{
        norm_of(2),
        first_devices(3),
        {.split = ls::Split::sizes(sizes), .buffers = ls::ReplicaBuffers::synchronized}};
    EXPECT_TRUE(throws<ls::ValueError>(
        [&] {
          model(varied({1, 2}, 0, "cpu"));
        },
        "Expected more than 1 value per channel when training", "1 value in all replicas"));
    EXPECT_EQ(model.module().running_var.to_vector<double>(), (Values{1, 1}));
  }
}

TEST(BatchNormReplicas, EvalReachesTheModuleItself) {
  ls::DataParallel model{norm_of(1), first_devices(2)};
  ls::eval(model);
  EXPECT_FALSE(model.module().training);
  EXPECT_TRUE(all_close(model(two_pairs()), two_pairs(), 1e-4)) << "statistics of 0 and 1";
  EXPECT_EQ(model.module().num_batches_tracked.item<std::int64_t>(), 0);
}

// Two normalisations with a layer between.
struct Net {
  ls::nn::Linear fc{3, 4, {.dtype = ls::Dtype::f64}};
  ls::nn::BatchNorm1d first = norm_of(3);
  ls::nn::BatchNorm1d second = norm_of(4);
  ls::Tensor forward(const ls::Tensor& x) const { return second(fc(first(x))); }
};

void set_values(const Net& net) {
  const ls::NoGradGuard guard;
  net.fc.weight.copy_(varied({4, 3}, 1));
  net.fc.bias.copy_(varied({4}, 2));
  net.first.weight.copy_(varied({3}, 3));
  net.second.weight.copy_(varied({4}, 4));
}

struct Result {
  ls::Tensor y;
  ls::Tensor grad;
  std::vector<ls::Tensor> grads;
  std::vector<ls::Tensor> buffers;
};

Result train_twice(std::size_t devices, const ls::DataParallelOptions& options) {
  ls::DataParallel model{Net{}, first_devices(devices), options};
  set_values(model.module());
  Result result;
  for (int step = 0; step < 2; ++step) {
    const ls::Tensor x = varied_leaf({10, 3}, 7);
    result.y = model(x);
    (result.y * result.y * varied({10, 4}, 8)).sum().backward();
    result.grad = x.grad();
  }
  for (const ls::Parameter& parameter : ls::parameters(model.module())) {
    result.grads.push_back(parameter.grad());
  }
  for (const ls::Buffer& buffer : ls::buffers(model.module())) result.buffers.push_back(buffer);
  return result;
}

void expect_alike(const Result& a, const Result& b) {
  constexpr double kTolerance = 1e-10;
  EXPECT_TRUE(all_close(a.y, b.y, kTolerance, kTolerance));
  EXPECT_TRUE(all_close(a.grad, b.grad, kTolerance, kTolerance));
  ASSERT_EQ(a.grads.size(), b.grads.size());
  for (std::size_t i = 0; i < a.grads.size(); ++i) {
    EXPECT_TRUE(all_close(a.grads[i], b.grads[i], kTolerance, kTolerance)) << "parameter " << i;
  }
  ASSERT_EQ(a.buffers.size(), 6U);
  for (const std::size_t i : {0U, 1U, 3U, 4U}) {
    EXPECT_TRUE(all_close(a.buffers[i], b.buffers[i], kTolerance, kTolerance)) << "buffer " << i;
  }
  EXPECT_EQ(a.buffers[2].item<std::int64_t>(), 2);
  EXPECT_EQ(a.buffers[5].item<std::int64_t>(), 2);
}

TEST(BatchNormReplicas, SynchronizedTheyAreAsOneDevice) {
  const Result one = train_twice(1, {});
  for (const std::size_t k : {2U, 3U, 4U}) {
    SCOPED_TRACE(k);
    expect_alike(train_twice(k, {.buffers = ls::ReplicaBuffers::synchronized}), one);
  }
  // With one row, or none, on some device.
  expect_alike(train_twice(4, {.split = ls::Split::sizes({4, 1, 0, 5}),
                               .buffers = ls::ReplicaBuffers::synchronized}),
               one);
}

TEST(BatchNormReplicas, SynchronizedStatisticsAreAlikeInEachReplica) {
  // Gives the running statistics of the replica that it ran in.
  struct Statistics {
    ls::nn::BatchNorm1d norm = norm_of(1);
    ls::Tensor forward(const ls::Tensor& x) const {
      norm(x);
      return ls::cat({norm.running_mean.reshape({1, 1}), norm.running_var.reshape({1, 1})}, 1);
    }
  };
  ls::DataParallel model{
      Statistics{}, first_devices(3), {.buffers = ls::ReplicaBuffers::synchronized}};
  // Mean 3, unbiased variance 14 / 2; each moves half the way, from 0 and from 1.
  EXPECT_TRUE(
      all_close(model(f64({1, 2, 6}, {3, 1})), f64({1.5, 4, 1.5, 4, 1.5, 4}, {3, 2}), 1e-12));
  EXPECT_FALSE(ls::detail::current_replica.sum_of_batch);
}

TEST(BatchNormReplicas, OutsideOfTrainingNothingMeets) {
  // The first replica alone normalises: it would wait for ever, or be released with an error.
  struct First {
    ls::nn::BatchNorm1d norm = norm_of(1);
    ls::Tensor forward(const ls::Tensor& x) const {
      return ls::replicas::index() == 0 ? norm(x) : x;
    }
  };
  ls::DataParallel model{First{}, first_devices(2), {.buffers = ls::ReplicaBuffers::synchronized}};
  EXPECT_TRUE(throws<ls::ReplicaReleased>([&] { model(two_pairs()); }, "replica 0"));
  ls::eval(model);
  EXPECT_TRUE(all_close(model(two_pairs()), f64({1, 3, 10, 20}, {4, 1}), 1e-4));
}

TEST(BatchNormReplicas, SecondDerivativesPassThroughStatisticsOfTheWholeBatch) {
  const auto second = [](std::size_t k) {
    ls::DataParallel model{
        norm_of(2), first_devices(k), {.buffers = ls::ReplicaBuffers::synchronized}};
    const ls::Tensor x = varied_leaf({6, 2}, 3);
    const ls::Tensor y = model(x);
    const ls::Tensor grad =
        ls::autograd::grad({(y * y * varied({6, 2}, 4)).sum()}, {x}, {}, true, true)[0];
    return ls::autograd::grad({(grad * grad).sum()}, {x})[0];
  };
  EXPECT_TRUE(all_close(second(3), second(1), 1e-9, 1e-9));
}

TEST(EmbeddingReplicas, D05GradientsOfRowsAreAddedUp) {
  ls::DataParallel model{ls::nn::Embedding{4, 2}, first_devices(2)};
  const ls::Tensor y = model(ls::tensor<std::int64_t>({3, 0, 3}));
  EXPECT_EQ(y.sizes(), (ls::Shape{3, 2}));
  y.sum().backward();
  EXPECT_EQ(model.module().weight.grad().to_vector<float>(),
            (std::vector<float>{1, 1, 0, 0, 0, 0, 2, 2}));
}

TEST(EmbeddingReplicas, AnIndexOutsideNamesTheReplica) {
  ls::DataParallel model{ls::nn::Embedding{4, 2}, first_devices(3)};
  EXPECT_TRUE(throws<ls::IndexError>(
      [&] {
        model(ls::tensor<std::int64_t>({0, 1, 4}));
      },
      "replica 2", "index 4", "position 0", "4 embeddings"));
}

TEST(LayerNormReplicas, OutputsAndGradientsAreThoseOfOneDevice) {
  const auto run = [](std::size_t k) {
    ls::DataParallel model{ls::nn::LayerNorm{4, {.dtype = ls::Dtype::f64}}, first_devices(k)};
    const ls::Tensor x = varied_leaf({7, 4}, 1);
    const ls::Tensor y = model(x);
    (y * y * varied({7, 4}, 2)).sum().backward();
    return std::vector<ls::Tensor>{y, x.grad(), model.module().weight.grad(),
                                   model.module().bias.grad()};
  };
  const std::vector<ls::Tensor> one = run(1);
  const std::vector<ls::Tensor> three = run(3);
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_TRUE(all_close(three[i], one[i], 1e-12, 1e-12)) << i;
  }
}

// Whether each of 4 × 500 ones passes a dropout on these devices.
std::vector<float> dropped_on(const std::vector<ls::Device>& devices) {
  ls::manual_seed(11);
  ls::DataParallel model{ls::nn::Dropout{0.5}, devices};
  model(ls::ones({4, 500}));  // takes the first numbers
  return model(ls::ones({4, 500})).to_vector<float>();
}

TEST(DropoutReplicas, TheSeedAndTheDevicesDecideWhatIsDropped) {
  const auto rows = [](const std::vector<float>& values, std::ptrdiff_t first) {
    return std::vector<float>(values.begin() + first * 500, values.begin() + (first + 1) * 500);
  };
  const ls::Device same("cpu:1");
  for (const std::vector<ls::Device>& devices : {first_devices(4), {same, same, same, same}}) {
    const std::vector<float> values = dropped_on(devices);
    for (int again = 0; again < 20; ++again) EXPECT_EQ(dropped_on(devices), values);
    for (std::ptrdiff_t i = 0; i < 4; ++i) {
      for (std::ptrdiff_t j = 0; j < i; ++j) EXPECT_NE(rows(values, i), rows(values, j));
    }
  }
}

TEST(DropoutReplicas, OutsideOfTrainingNothingIsDropped) {
  ls::DataParallel model{ls::nn::Dropout{0.5}, first_devices(2)};
  ls::eval(model);
  EXPECT_EQ(model(ls::ones({4, 3})).to_vector<float>(), std::vector<float>(12, 1));
}

}  // namespace layers_parallel_test
