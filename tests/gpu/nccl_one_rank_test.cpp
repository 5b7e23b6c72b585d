// SPDX-License-Identifier: Apache-2.0

// NCCL itself on one GPU, which is all that it takes of one: a group of one rank.
#include <lockstep/lockstep.hpp>
#include <lockstep/nccl.hpp>

#include "distributed/collective_cases.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep {
namespace nccl_one_rank_test {

const Device kGpu = "cuda:0";

distributed::ProcessGroup one_rank() {
  if (!distributed::is_initialized()) nccl::init_process_group(kGpu);
  return distributed::default_group();
}

TEST(NcclOneRank, HasTheCollectives) {
  const distributed::ProcessGroup group = one_rank();
  EXPECT_EQ(group.size(), 1);
  testing::expect_reductions(group, 37);
  testing::expect_moves(group, 37);
  testing::expect_many_in_flight(group);
}

TEST(NcclOneRank, TrainsAsTheModelAlone) {
  manual_seed(3);
  const nn::Linear net{12, 4};
  const Tensor x = randn({8, 12}).to(kGpu);
  const auto losses = [&](auto model) {
    optim::SGD sgd{model.parameters(), {.lr = 0.1}};
    std::vector<float> values;
    for (int step = 0; step < 3; ++step) {
      const Tensor y = model(x);
      const Tensor loss = mean(y * y);
      sgd.zero_grad();
      loss.backward();
      sgd.step();
      values.push_back(loss.item<float>());
    }
    return values;
  };
  EXPECT_EQ(losses(DistributedDataParallel{replicate(net, {kGpu})[0], one_rank()}),
            losses(DataParallel{replicate(net, {kGpu})[0], {kGpu}}));
}

}  // namespace nccl_one_rank_test
}  // namespace lockstep
