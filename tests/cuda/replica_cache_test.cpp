// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/parallel/comm/scatter.hpp>
#include <lockstep/parallel/criterion.hpp>
#include <lockstep/parallel/scattered.hpp>
#include <lockstep/tensor/creation.hpp>

#include "cuda/schedules.hpp"

#include <gtest/gtest.h>

#include <vector>

// Weights that have changed are copied over the replicas' memory only when nothing reads that any
// more, on whatever stream it does. The order is the simulator's to judge.
namespace lockstep {
namespace replica_cache_on_gpus_test {

using Values = std::vector<float>;

struct Times {
  Parameter weight;
  Tensor forward(const Tensor& x) const { return x * weight; }
};

// Two forwards of two models, with other weights in the second, on these streams of the second GPU.
// What they take and give stays there: to free or to move it would be an order between the two.
void read_then_overwrite(const Stream& first, const Stream& second) {
  const NoGradGuard no_grad;
  DataParallelModel model{Times{Parameter(ones({4}))}, {"cuda:0", "cuda:1"}};
  const Scattered<Tensor> x(comm::scatter(ones({6, 4}), {"cuda:0", "cuda:1"}));
  synchronize("cuda:1");
  const Scattered<Tensor> before = [&] {
    const StreamGuard guard(first);
    return model(x);
  }();
  model.module().weight.fill_(3);
  const Scattered<Tensor> after = [&] {
    const StreamGuard guard(second);
    return model(x);
  }();
  first.synchronize();
  second.synchronize();
  EXPECT_EQ(before[1].to("cpu").to_vector<float>(), Values(12, 1));
  EXPECT_EQ(after[1].to("cpu").to_vector<float>(), Values(12, 3));
}

TEST(ReplicaCacheOnGpus, ACopyWaitsForTheCurrentStream) {
  testing::under_many_schedules([] {
    const Stream compute = default_stream("cuda:1");
    read_then_overwrite(compute, compute);
  });
}

TEST(ReplicaCacheOnGpus, ACopyWaitsForAStreamThatIsCurrentNoMore) {
  testing::under_many_schedules([] {
    read_then_overwrite(pool_stream("cuda:1"), default_stream("cuda:1"));
    read_then_overwrite(default_stream("cuda:1"), pool_stream("cuda:1"));
  });
}

}  // namespace replica_cache_on_gpus_test
}  // namespace lockstep
