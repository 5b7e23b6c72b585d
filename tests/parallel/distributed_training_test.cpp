// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/distributed.hpp>

#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/nn/activation.hpp>
#include <lockstep/nn/conv.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/loss.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/distributed_hooks.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/random.hpp>

#include "support/devices.hpp"
#include "support/gate.hpp"
#include "support/within.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <latch>
#include <optional>
#include <vector>

namespace lockstep {
namespace distributed_training_test {

using distributed::ProcessGroup;
using testing::first_devices;
using testing::QueuedCompute;
using testing::Within;
using Values = std::vector<double>;

struct SmallCnn {
  nn::Conv2d conv;
  nn::Linear fc1;
  nn::Linear fc2;

  explicit SmallCnn(Dtype dtype)
      : conv(1, 4, 3, {.padding = 1, .dtype = dtype}),
        fc1(4 * 6 * 6, 10, {.dtype = dtype}),
        fc2(10, 3, {.dtype = dtype}) {}
  Tensor forward(const Tensor& x) const { return fc2(relu(fc1(relu(conv(x)).flatten(1)))); }
  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("conv", self.conv);
    visit("fc1", self.fc1);
    visit("fc2", self.fc2);
  }
};

constexpr int kSteps = 20;
constexpr std::int64_t kBatch = 8;

struct Data {
  std::vector<Tensor> images;
  std::vector<Tensor> labels;

  explicit Data(Dtype dtype) {
    manual_seed(7);
    for (int step = 0; step < kSteps; ++step) {
      images.push_back(randn({kBatch, 1, 6, 6}).to(dtype));
      std::vector<std::int64_t> classes;
      for (std::int64_t i = 0; i < kBatch; ++i) classes.push_back((i + step) % 3);
      labels.push_back(from_values(classes, {kBatch}));
    }
  }
};

// What a training gave: the mean loss of each step, and the parameters at the end.
struct Trained {
  Values losses;
  Values parameters;
};

Values parameters_of(const SmallCnn& net) {
  Values values;
  for (const Parameter& parameter : parameters(net)) {
    for (const double value : parameter.to(Dtype::f64).to_vector<double>()) values.push_back(value);
  }
  return values;
}

Trained train_alone(Dtype dtype, const Data& data) {
  manual_seed(1);
  const SmallCnn net(dtype);
  optim::SGD sgd{parameters(net), {.lr = 0.1, .momentum = 0.9}};
  Trained result;
  for (std::size_t step = 0; step < kSteps; ++step) {
    sgd.zero_grad();
    const Tensor loss = cross_entropy(net.forward(data.images[step]), data.labels[step]);
    loss.backward();
    sgd.step();
    result.losses.push_back(loss.item());
  }
  result.parameters = parameters_of(net);
  return result;
}

using Change = std::function<void(DistributedDataParallel<SmallCnn>&)>;

Trained train_together(std::size_t world, Dtype dtype, const Data& data,
                       const DistributedDataParallelOptions& options = {}, bool set_to_none = true,
                       const Change& change = {}) {
  std::vector<Trained> results(world);
  manual_seed(1);
  const SmallCnn first(dtype);  // rank 0's, which the others get
  distributed::run(first_devices(world), [&](const ProcessGroup& group) {
    const auto r = static_cast<std::size_t>(group.rank());
    DistributedDataParallel model{r == 0 ? first : SmallCnn(dtype), group, options};
    if (change) change(model);
    optim::SGD sgd{model.parameters(), {.lr = 0.1, .momentum = 0.9}};
    const std::int64_t share = kBatch / group.size();
    for (std::size_t step = 0; step < kSteps; ++step) {
      sgd.zero_grad(set_to_none);
      const Tensor images = data.images[step].narrow(0, group.rank() * share, share);
      const Tensor labels = data.labels[step].narrow(0, group.rank() * share, share);
      const Tensor loss = cross_entropy(model(images), labels.to(group.device()));
      loss.backward();
      sgd.step();
      const Tensor mean = loss.detach().clone();
      group.all_reduce(mean, distributed::ReduceOp::avg).wait();
      results[r].losses.push_back(mean.item());
    }
    results[r].parameters = parameters_of(model.module());
  });
  for (const Trained& other : results) {
    EXPECT_EQ(other.parameters, results[0].parameters);
    EXPECT_EQ(other.losses, results[0].losses);
  }
  return results[0];
}

// The largest difference, relative to the largest value.
double distance(const Values& a, const Values& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return difference / largest;
}

void expect_equal(const Trained& together, const Trained& alone, double tolerance) {
  EXPECT_LT(distance(together.losses, alone.losses), tolerance);
  EXPECT_LT(distance(together.parameters, alone.parameters), tolerance);
}

TEST(DistributedTraining, AnyNumberOfRanksLearnsWhatOneDoesFromTheWholeBatch) {
  const Data data(Dtype::f64);
  const Trained alone = train_alone(Dtype::f64, data);
  EXPECT_LT(alone.losses.back(), alone.losses.front());
  for (const std::size_t world : {1u, 2u, 4u}) {
    expect_equal(train_together(world, Dtype::f64, data), alone, 1e-9);
  }
}

TEST(DistributedTraining, InF32AsWell) {
  const Data data(Dtype::f32);
  const Trained alone = train_alone(Dtype::f32, data);
  for (const std::size_t world : {1u, 2u, 4u}) {
    expect_equal(train_together(world, Dtype::f32, data), alone, 1e-4);
  }
}

TEST(DistributedTraining, WithEveryOption) {
  const Data data(Dtype::f64);
  const Trained alone = train_alone(Dtype::f64, data);
  for (const DistributedDataParallelOptions& options : std::vector<DistributedDataParallelOptions>{
           {.bucket_cap_mb = 0},
           {.bucket_cap_mb_list = {0.001, 0.01}},
           {.bucket_cap_mb = 0, .find_unused_parameters = true},
           {.static_graph = true}}) {
    for (const bool set_to_none : {true, false}) {
      expect_equal(train_together(2, Dtype::f64, data, options, set_to_none), alone, 1e-9);
    }
  }
}

TEST(DistributedTraining, TwoRunsGiveTheSameBits) {
  const Data data(Dtype::f32);
  for (const double cap : {0.0, 25.0}) {
    const Trained one = train_together(4, Dtype::f32, data, {.bucket_cap_mb = cap});
    const Trained two = train_together(4, Dtype::f32, data, {.bucket_cap_mb = cap});
    EXPECT_EQ(one.losses, two.losses);
    EXPECT_EQ(one.parameters, two.parameters);
  }
}

TEST(DistributedTraining, OnStreamsThatAreReallyAsynchronous) {
  const Data data(Dtype::f64);
  const Trained alone = train_alone(Dtype::f64, data);
  const QueuedCompute queued;
  for (const bool set_to_none : {true, false}) {
    expect_equal(train_together(2, Dtype::f64, data, {.bucket_cap_mb = 0}, set_to_none), alone,
                 1e-9);
  }
}

TEST(DistributedTraining, CompressedGradientsLearnNearlyTheSame) {
  const Data data(Dtype::f32);
  const Trained alone = train_alone(Dtype::f32, data);
  const Trained together = train_together(2, Dtype::f32, data, {}, true, [](auto& model) {
    model.register_comm_hook(ddp_comm_hooks::bf16_compress_hook(model.process_group()));
  });
  EXPECT_LT(distance(together.parameters, alone.parameters), 0.05);
  EXPECT_GT(distance(together.parameters, alone.parameters), 1e-6);  // it was compressed
}

// A batch in two halves, of which only the second's backward is synchronised.
TEST(DistributedTraining, AccumulatedGradientsAreThoseOfTheWhole) {
  manual_seed(3);
  const Tensor x = randn({8, 1, 6, 6}).to(Dtype::f64);
  manual_seed(4);
  const SmallCnn net(Dtype::f64);
  net.forward(x).sum().backward();
  Values whole;
  for (const Parameter& parameter : parameters(net)) {
    for (const double value : parameter.grad().to_vector<double>()) whole.push_back(value / 2);
  }
  zero_grad(net);
  distributed::run(first_devices(2), [&](const ProcessGroup& group) {
    DistributedDataParallel model{group.rank() == 0 ? net : SmallCnn(Dtype::f64), group};
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      const Tensor mine = x.narrow(0, group.rank() * 4, 4);
      {
        const auto guard = model.no_sync();
        model(mine.narrow(0, 0, 2)).sum().backward();
      }
      model(mine.narrow(0, 2, 2)).sum().backward();
      Values grads;
      for (const Parameter& parameter : model.parameters()) {
        for (const double value : parameter.grad().to_vector<double>()) grads.push_back(value);
      }
      EXPECT_LT(distance(grads, whole), 1e-12);
    }
  });
}

// Weights that are used one after the other, with something done in backward before the first one's
// gradient.
struct Chain {
  std::vector<Parameter> weights;
  Tensor forward(const Tensor& x) const {
    Tensor y = x;
    for (const Parameter& weight : weights) y = y * weight;
    return y;
  }
};

Chain chain() {
  Chain module;
  for (int i = 0; i < 4; ++i) module.weights.emplace_back(ones({16}));
  return module;
}

// The last node of backward on rank 0 sees that the first bucket has been handed over and, as rank
// 1 is held, that nobody has waited for its end.
TEST(DistributedOverlap, ABucketIsLaunchedWhileBackwardGoesOn) {
  std::latch seen{1};
  distributed::run(first_devices(2), [&](const ProcessGroup& group) {
    DistributedDataParallel model{chain(), group, {.bucket_cap_mb_list = {0}}};
    std::vector<distributed::Work> works;
    model.register_comm_hook([&](const GradBucket& bucket) {
      works.push_back(group.all_reduce(bucket.buffer(), distributed::ReduceOp::avg));
      return BucketFuture(works.back(), bucket.buffer());
    });
    const Tensor x = ones({16}, {.device = group.device(), .requires_grad = true});
    int calls = 0;
    const auto last = [&] {
      ++calls;
      if (group.rank() == 1) return;
      EXPECT_GE(works.size(), 3u);
      for (const distributed::Work& work : works) EXPECT_FALSE(work.is_completed());
      seen.count_down();
    };
    const Tensor loss = model(apply(Within{last}, x)).sum();
    if (group.rank() == 1) seen.wait();
    loss.backward();
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(works.size(), 4u);
    for (const distributed::Work& work : works) EXPECT_TRUE(work.is_completed());
  });
}

// And that its result is there before backward has ended, where nobody is held.
TEST(DistributedOverlap, ABucketIsReducedWhileBackwardGoesOn) {
  distributed::run(first_devices(2), [&](const ProcessGroup& group) {
    DistributedDataParallel model{chain(), group, {.bucket_cap_mb_list = {0}}};
    std::vector<BucketFuture> futures;
    model.register_comm_hook([&](const GradBucket& bucket) {
      const distributed::Work work = group.all_reduce(bucket.buffer(), distributed::ReduceOp::avg);
      futures.emplace_back(work, bucket.buffer());
      return futures.back();
    });
    const Tensor x = full({16}, group.rank() + 1, {.device = group.device()}).requires_grad_();
    bool reduced = false;
    const auto last = [&] {
      ASSERT_FALSE(futures.empty());
      reduced = futures[0].wait().to_vector<float>()[0] == 1.5F;
    };
    model(apply(Within{last}, x)).sum().backward();
    EXPECT_TRUE(reduced);
  });
}

// What the graph does not lead to is known to be unused as soon as backward begins.
TEST(DistributedOverlap, AnUnusedParameterDoesNotHoldUpItsBucket) {
  struct Partly {
    std::vector<Parameter> weights = chain().weights;
    Tensor forward(const Tensor& x) const { return x * weights[0]; }
  };
  distributed::run(first_devices(2), [&](const ProcessGroup& group) {
    DistributedDataParallel model{
        Partly{}, group, {.bucket_cap_mb = 0, .find_unused_parameters = true}};
    std::size_t launched = 0;
    model.register_comm_hook([&](const GradBucket& bucket) {
      ++launched;
      return BucketFuture(group.all_reduce(bucket.buffer()), bucket.buffer());
    });
    const Tensor x = ones({16}, {.device = group.device()});
    const Tensor other = ones({16}, {.device = group.device(), .requires_grad = true});
    std::size_t launched_before_the_last = 0;
    const auto last = [&] { launched_before_the_last = launched; };
    (apply(Within{last}, other).sum() + model(x).sum()).backward();
    EXPECT_EQ(launched_before_the_last, 4u);
    EXPECT_FALSE(model.module().weights[3].grad().defined());
  });
}

TEST(DistributedCounts, ABucketIsLaunchedOnlyAfterAllBeforeIt) {
  distributed::run(first_devices(2), [&](const ProcessGroup& group) {
    // Initial buckets: the last weight first. The gradients come in the opposite order.
    struct Reversed {
      std::vector<Parameter> weights = chain().weights;
      Tensor forward(const Tensor& x) const {
        Tensor y = x;
        for (auto weight = weights.rbegin(); weight != weights.rend(); ++weight) y = y * *weight;
        return y;
      }
    };
    DistributedDataParallel model{
        Reversed{}, group, {.bucket_cap_mb = 0, .find_unused_parameters = true}};
    std::vector<std::size_t> launched;
    model.register_comm_hook([&](const GradBucket& bucket) {
      launched.push_back(bucket.index());
      return bucket.buffer();
    });
    model(ones({16})).sum().backward();
    EXPECT_EQ(launched, (std::vector<std::size_t>{0, 1, 2, 3}));
    EXPECT_EQ(model.logging_data().initial_bucket_sizes, std::vector<std::size_t>(4, 64));
  });
}

TEST(DistributedCounts, BucketsAreRebuiltInTheOrderInWhichRank0sGradientsBecameReady) {
  distributed::run(first_devices(2), [&](const ProcessGroup& group) {
    struct Chosen {
      std::vector<Parameter> weights = chain().weights;
      Tensor forward(const Tensor& x, const std::vector<std::size_t>& order) const {
        Tensor y = x;
        for (const std::size_t i : order) y = y * weights[i];
        return y;
      }
    };
    DistributedDataParallel model{Chosen{}, group, {.bucket_cap_mb = 0}};
    const std::vector<std::size_t> order = group.rank() == 0 ? std::vector<std::size_t>{1, 3, 0, 2}
                                                             : std::vector<std::size_t>{0, 1, 2, 3};
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      model(full({16}, group.rank() + 1), order).sum().backward();
      for (const Parameter& weight : model.parameters()) {
        EXPECT_EQ(weight.grad().to_vector<float>(), std::vector<float>(16, 1.5F));
      }
    }
    EXPECT_EQ(model.logging_data().prev_iteration_grad_ready_order,
              (std::vector<std::size_t>{2, 0, 3, 1}));
  });
}

TEST(DistributedCounts, AGradientIsCopiedOnceAndNotAtAllWhereItIsAddedInPlace) {
  distributed::run(first_devices(2), [&](const ProcessGroup& group) {
    DistributedDataParallel model{chain(), group};
    const optim::SGD sgd{model.parameters(), {.lr = 0.1}};
    const auto copies_of_a_step = [&](bool set_to_none) {
      const std::uint64_t before = model.logging_data().num_gradient_copies;
      for (const Parameter& weight : model.parameters()) {
        if (set_to_none) {
          weight.set_grad({});
        } else if (weight.grad().defined()) {
          weight.grad().zero_();
        }
      }
      model(ones({16})).sum().backward();
      return model.logging_data().num_gradient_copies - before;
    };
    EXPECT_EQ(copies_of_a_step(true), 4u);
    EXPECT_EQ(copies_of_a_step(false), 4u);  // into the buckets that were made anew
    EXPECT_EQ(copies_of_a_step(false), 0u);
    EXPECT_EQ(copies_of_a_step(false), 0u);
    EXPECT_EQ(copies_of_a_step(true), 4u);
    EXPECT_EQ(copies_of_a_step(true), 4u);
  });
}

TEST(DistributedCounts, OneAllReduceABucket) {
  distributed::run(first_devices(2), [&](const ProcessGroup& group) {
    const auto after = [&group](int steps, const DistributedDataParallelOptions& options) {
      DistributedDataParallel model{chain(), group, options};
      for (int step = 0; step < steps; ++step) model(ones({16})).sum().backward();
      EXPECT_EQ(model.logging_data().num_iterations, static_cast<std::uint64_t>(steps));
      return model.logging_data().num_all_reduces;
    };
    // The first step has one bucket, and one more in which the ranks tell each other what they
    // have used.
    EXPECT_EQ(after(1, {}), 2u);
    EXPECT_EQ(after(5, {}), 2u + 4u);
    EXPECT_EQ(after(5, {.bucket_cap_mb = 0}), 2u + 4u * 4u);
    EXPECT_EQ(after(5, {.bucket_cap_mb = 0, .find_unused_parameters = true}), 5u * (4u + 1u));
    EXPECT_EQ(after(5, {.bucket_cap_mb = 0, .static_graph = true}), 2u + 4u * 4u);
  });
}

TEST(DistributedCounts, OnlyForwardsOfIterationsAreTimed) {
  distributed::run(first_devices(2), [&](const ProcessGroup& group) {
    DistributedDataParallel model{chain(), group};
    const auto times = [&model](const auto& step) {
      const auto before = model.logging_data().forward_time;
      step();
      return model.logging_data().forward_time > before;
    };
    const auto step = [&model] { model(ones({16})).sum().backward(); };
    EXPECT_TRUE(times(step));
    EXPECT_FALSE(times([&] {
      const auto guard = model.no_sync();
      step();
    }));
    EXPECT_FALSE(times([&] {
      const NoGradGuard guard;
      (void)model(ones({16}));
    }));
    EXPECT_TRUE(times(step));
    EXPECT_EQ(model.logging_data().num_iterations, 2u);
  });
}

TEST(DistributedCounts, NoMemoryComesFromTheSystemOnceTrainingIsUnderWay) {
  distributed::run(first_devices(2), [&](const ProcessGroup& group) {
    DistributedDataParallel model{SmallCnn(Dtype::f32), group, {.bucket_cap_mb = 0.001}};
    optim::SGD sgd{model.parameters(), {.lr = 0.1, .momentum = 0.9}};
    const Tensor x = ones({4, 1, 6, 6}, {.device = group.device()});
    const Tensor labels = zeros({4}, {.dtype = Dtype::i64, .device = group.device()});
    std::uint64_t fresh = 0;
    for (int step = 0; step < 10; ++step) {
      if (step == 3) fresh = memory_stats(group.device()).fresh_allocations;
      sgd.zero_grad();
      cross_entropy(model(x), labels).backward();
      sgd.step();
    }
    EXPECT_EQ(memory_stats(group.device()).fresh_allocations, fresh);
  });
}

// Gradients of one bucket that come on two streams.
TEST(DistributedStreams, ABucketIsLaunchedAfterWhatEveryStreamHasPutIntoIt) {
  const Device device = first_devices(1)[0];
  const QueuedCompute queued;
  const testing::Gate gate;
  const Stream side = copy_stream(device);
  detail::ReducerBuckets::Bucket bucket{
      .gradients = {0, true, zeros({1}, {.device = device}), {}, {}}, .members = {}};
  current_stream(device).synchronize();
  gate.hold(side);
  {
    const StreamGuard guard(side);
    detail::ReducerBuckets::move_to_current_stream(bucket);
  }
  EXPECT_TRUE(current_stream(device).query());
  detail::ReducerBuckets::move_to_current_stream(bucket);
  EXPECT_FALSE(current_stream(device).query());
}

TEST(DistributedStreams, BackwardOnAStreamOfItsOwn) {
  const QueuedCompute queued;
  distributed::run(first_devices(2), [&](const ProcessGroup& group) {
    DistributedDataParallel model{chain(), group, {.bucket_cap_mb = 0}};
    const Stream side = pool_stream(group.device());
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      Tensor loss;
      {
        side.wait_stream(current_stream(group.device()));
        const StreamGuard guard(side);
        loss = model(full({16}, group.rank() + 1)).sum();
      }
      loss.backward();
      for (const Parameter& weight : model.parameters()) {
        EXPECT_EQ(weight.grad().to_vector<float>(), std::vector<float>(16, 1.5F));
      }
    }
  });
}

TEST(DistributedLayout, GradientsOfImagesInChannelsLastKeepTheirLayout) {
  distributed::run(first_devices(2), [&](const ProcessGroup& group) {
    struct Filters {
      Parameter weight;
      Tensor forward(const Tensor& x) const { return (weight * x).sum(); }
    };
    const TensorOptions here{.device = group.device()};
    const Tensor values = arange(2 * 3 * 2 * 2, here).reshape({2, 3, 2, 2});
    DistributedDataParallel model{
        Filters{Parameter(ones({2, 3, 2, 2}, here).contiguous(MemoryFormat::channels_last))},
        group};
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      model(values * (group.rank() + 1)).backward();
      const Tensor grad = model.module().weight.grad();
      EXPECT_EQ(grad.strides(), model.module().weight.strides());
      const std::vector<float> found = grad.to_vector<float>();
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i], 1.5F * static_cast<float>(i));
      }
    }
  });
}

}  // namespace distributed_training_test
}  // namespace lockstep
