// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/distributed_hooks.hpp>

#include <lockstep/autograd/engine.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/linear.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/parallel/distributed.hpp>
#include <lockstep/tensor/creation.hpp>

#include "support/devices.hpp"
#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace lockstep {
namespace distributed_hooks_test {

using distributed::ProcessGroup;
using testing::first_devices;
using testing::throws;
using Values = std::vector<double>;

// The gradient of each weight is that weight's scale times the argument.
struct Net {
  Parameter first{full({3}, 1)};
  Parameter second{full({2}, 1, {.dtype = Dtype::f64})};
  Tensor forward(double x) const { return first.sum().to(Dtype::f64) * x + second.sum() * x; }
};

void on_two(const std::function<void(const ProcessGroup&, DistributedDataParallel<Net>&)>& body) {
  distributed::run(first_devices(2), [&](const ProcessGroup& group) {
    DistributedDataParallel model{Net{}, group};
    body(group, model);
  });
}

void expect_grads(const Net& net, double value) {
  EXPECT_EQ(net.first.grad().to_vector<float>(), std::vector<float>(3, static_cast<float>(value)));
  EXPECT_EQ(net.second.grad().to_vector<double>(), Values(2, value));
}

TEST(CommHooks, DD19AHookTakesOverTheAveraging) {
  on_two([](const ProcessGroup& group, auto& model) {
    model.register_comm_hook([](const GradBucket& bucket) { return bucket.buffer(); });
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      model(group.rank() + 1.0).backward();
      expect_grads(model.module(), group.rank() + 1);
    }
  });
}

TEST(CommHooks, DD20OnlyOneCanBeRegistered) {
  on_two([](const ProcessGroup& group, auto& model) {
    model.register_comm_hook(ddp_comm_hooks::allreduce_hook(group));
    EXPECT_TRUE(throws<ValueError>(
        [&] { model.register_comm_hook(ddp_comm_hooks::allreduce_hook(group)); },
        "register_comm_hook or register_builtin_comm_hook can only be called once."));
  });
}

TEST(CommHooks, AnEmptyOneIsAnError) {
  on_two([](const ProcessGroup&, auto& model) {
    EXPECT_TRUE(throws<ValueError>([&] { model.register_comm_hook({}); }, "empty"));
  });
}

TEST(CommHooks, AllreduceDoesWhatIsDoneWithout) {
  on_two([](const ProcessGroup& group, auto& model) {
    model.register_comm_hook(ddp_comm_hooks::allreduce_hook(group));
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      model(group.rank() + 1.0).backward();
      expect_grads(model.module(), 1.5);
    }
  });
}

// bf16 has 8 binary digits, f16 has 11.
TEST(CommHooks, CompressionRoundsEachRanksGradients) {
  on_two([](const ProcessGroup& group, auto& model) {
    model.register_comm_hook(ddp_comm_hooks::bf16_compress_hook(group));
    model(group.rank() == 0 ? 1 + 0x1p-9 : 3).backward();
    expect_grads(model.module(), 2);
  });
  on_two([](const ProcessGroup& group, auto& model) {
    model.register_comm_hook(ddp_comm_hooks::fp16_compress_hook(group));
    model(group.rank() == 0 ? 1 + 0x1p-9 + 0x1p-13 : 1 + 0x1p-9).backward();
    expect_grads(model.module(), 1 + 0x1p-9);
  });
}

TEST(CommHooks, ASumInHalfPrecisionDoesNotOverflow) {
  on_two([](const ProcessGroup& group, auto& model) {
    model.register_comm_hook(ddp_comm_hooks::fp16_compress_hook(group));
    model(40000).backward();
    expect_grads(model.module(), 40000);
  });
}

TEST(CommHooks, AWrapperCompressesForAnotherHook) {
  on_two([](const ProcessGroup&, auto& model) {
    std::vector<Dtype> seen;
    model.register_comm_hook(ddp_comm_hooks::bf16_compress_wrapper([&](const GradBucket& bucket) {
      seen.push_back(bucket.buffer().dtype());
      EXPECT_EQ(bucket.gradient(0).sizes(), bucket.parameters()[0].sizes());
      return bucket.buffer();
    }));
    model(1 + 0x1p-9).backward();
    EXPECT_EQ(seen, (std::vector<Dtype>{Dtype::bf16, Dtype::bf16}));
    expect_grads(model.module(), 1);
  });
}

TEST(CommHooks, AWrapperOfNothingIsRefused) {
  EXPECT_TRUE(throws<ValueError>([] { (void)ddp_comm_hooks::fp16_compress_wrapper({}); },
                                 "fp16_compress_wrapper: expected a hook"));
  EXPECT_TRUE(throws<ValueError>([] { (void)ddp_comm_hooks::bf16_compress_wrapper({}); },
                                 "bf16_compress_wrapper: expected a hook"));
}

TEST(CommHooks, AGradientThatABucketHasNotIsAnIndexError) {
  on_two([](const ProcessGroup&, auto& model) {
    model.register_comm_hook([](const GradBucket& bucket) {
      EXPECT_TRUE(throws<IndexError>([&] { (void)bucket.gradient(bucket.size()); },
                                     "GradBucket.gradient: expected an index below 1, got 1"));
      return bucket.buffer();
    });
    model(1).backward();
  });
}

TEST(CommHooks, ABufferThatDoesNotFitABucketIsAShapeError) {
  const GradBucket bucket(0, true, ones({4}), {ones({2}), ones({2})}, {0, 2});
  const Tensor strided = ones({4, 2}).select(1, 0);
  for (const Tensor& buffer : {ones({3}), ones({5}), strided}) {
    EXPECT_TRUE(throws<ShapeError>([&] { (void)bucket.with_buffer(buffer); },
                                   "expected a contiguous tensor of 4 elements"));
  }
  EXPECT_EQ(bucket.with_buffer(full({4}, 2)).gradient(1).to_vector<float>(),
            (std::vector<float>{2, 2}));
}

TEST(CommHooks, BucketsComeInOrderWithTheirGradients) {
  on_two([](const ProcessGroup& group, auto& model) {
    std::vector<std::size_t> indices;
    std::vector<bool> last;
    model.register_comm_hook([&](const GradBucket& bucket) {
      indices.push_back(bucket.index());
      last.push_back(bucket.is_last());
      EXPECT_EQ(bucket.size(), 1u);
      EXPECT_EQ(bucket.gradients()[0].sum().item(),
                (group.rank() + 1.0) * static_cast<double>(bucket.parameters()[0].numel()));
      (void)model.logging_data();  // may be asked for here
      return bucket.buffer();
    });
    model(group.rank() + 1.0).backward();
    EXPECT_EQ(indices, (std::vector<std::size_t>{0, 1}));
    EXPECT_EQ(last, (std::vector<bool>{false, true}));
  });
}

TEST(CommHooks, ThenRunsAtTheEndOfBackwardAndMayCommunicate) {
  on_two([](const ProcessGroup& group, auto& model) {
    std::string order;
    model.register_comm_hook([&](const GradBucket& bucket) {
      order += 'h';
      const Tensor buffer = bucket.buffer();
      return BucketFuture(group.all_reduce(buffer), buffer)
          .then([&](const Tensor& sum) {
            order += 't';
            group.all_reduce(sum).wait();  // once more: the sum times the number of ranks
            return sum;
          })
          .then([](const Tensor& sum) {
            sum.mul_(0.25);
            return sum;
          });
    });
    model(group.rank() + 1.0).backward();
    EXPECT_EQ(order, "hhtt");
    expect_grads(model.module(), 1.5);
  });
}

TEST(CommHooks, ARepeatedWaitGivesWhatTheFirstGave) {
  on_two([](const ProcessGroup& group, auto& model) {
    model.register_comm_hook([&](const GradBucket& bucket) {
      const Tensor buffer = bucket.buffer();
      BucketFuture future =
          BucketFuture(group.all_reduce(buffer), buffer).then([](const Tensor& sum) {
            return sum * 0.5;
          });
      const Tensor mean = future.wait();
      EXPECT_EQ(future.wait().to(Dtype::f64).to_vector<double>(),
                mean.to(Dtype::f64).to_vector<double>());
      return future;
    });
    model(group.rank() + 1.0).backward();
    expect_grads(model.module(), 1.5);
  });
}

TEST(CommHooks, AResultThatDoesNotFitIsAnError) {
  on_two([](const ProcessGroup&, auto& model) {
    model.register_comm_hook([](const GradBucket&) { return zeros({1}); });
    const Tensor loss = model(1);
    EXPECT_TRUE(throws<ValueError>([&] { loss.backward(); }, "gave 1 elements for bucket 0"));
  });
}

TEST(CommHooks, WhatTheyThrowComesOutOfBackward) {
  on_two([](const ProcessGroup&, auto& model) {
    model.register_comm_hook([](const GradBucket& bucket) -> BucketFuture {
      check<IndexError>(bucket.index() != 1, "from the hook");
      return bucket.buffer();
    });
    const Tensor loss = model(1);
    EXPECT_TRUE(throws<IndexError>([&] { loss.backward(); }, "from the hook"));
    EXPECT_TRUE(throws<AutogradError>([&] { model(1); }, "from the hook"));
  });
}

}  // namespace distributed_hooks_test
}  // namespace lockstep
