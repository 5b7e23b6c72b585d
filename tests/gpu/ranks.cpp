// SPDX-License-Identifier: Apache-2.0

// Process groups on one GPU: NCCL itself with one rank, which is all that it takes of one GPU, and
// ranks that are threads on logical devices, which copy and add.
#include <lockstep/lockstep.hpp>
#include <lockstep/nccl.hpp>

#include "distributed/collective_cases.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace lockstep {
namespace gpu_ranks {

using distributed::ProcessGroup;
using Values = std::vector<double>;

const std::vector<Device> kDevices = {"cuda:0", "cuda:1", "cuda:2", "cuda:3"};

struct Net {
  nn::Linear first{6, 9, {.dtype = Dtype::f64}};
  nn::Linear second{9, 3, {.dtype = Dtype::f64}};
  Tensor forward(const Tensor& x) const { return second(relu(first(x))); }
};

constexpr std::int64_t kBatch = 8;
constexpr int kSteps = 4;

// Threads that are ranks draw from the same numbers: one at a time.
std::mutex drawing;

Net same_net() {
  const std::lock_guard lock(drawing);
  manual_seed(1);
  return Net{};
}

Tensor same_batch() {
  const std::lock_guard lock(drawing);
  manual_seed(2);
  return randn({kBatch, 6}, {.dtype = Dtype::f64});
}

Values train_alone() {
  Net net = same_net();
  const Tensor x = same_batch();
  optim::SGD sgd{parameters(net), {.lr = 0.1, .momentum = 0.9}};
  Values losses;
  for (int step = 0; step < kSteps; ++step) {
    const Tensor y = net.forward(x);
    const Tensor loss = mean(y * y);
    sgd.zero_grad();
    loss.backward();
    sgd.step();
    losses.push_back(loss.item());
  }
  return losses;
}

// This rank's losses: their mean over the ranks is the whole batch's.
Values train(const ProcessGroup& group) {
  DistributedDataParallel model(same_net(), group,
                                {.device_ids = {group.device()}, .bucket_cap_mb = 1e-4});
  const std::int64_t part = kBatch / group.size();
  const Tensor x = same_batch().narrow(0, group.rank() * part, part);
  optim::SGD sgd{model.parameters(), {.lr = 0.1, .momentum = 0.9}};
  Values losses;
  for (int step = 0; step < kSteps; ++step) {
    const Tensor y = model(x);
    const Tensor loss = mean(y * y);
    sgd.zero_grad();
    loss.backward();
    sgd.step();
    losses.push_back(loss.item() / group.size());
  }
  return losses;
}

void expect_losses_of_one(const Values& total) {
  const Values alone = train_alone();
  ASSERT_EQ(total.size(), alone.size());
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(total[i], alone[i], 1e-12) << i;
}

ProcessGroup one_rank() {
  if (!distributed::is_initialized()) nccl::init_process_group("cuda:0");
  return distributed::default_group();
}

TEST(NcclOneRank, HasTheCollectives) {
  const ProcessGroup group = one_rank();
  EXPECT_EQ(group.size(), 1);
  testing::expect_reductions(group, 37);
  testing::expect_moves(group, 37);
  testing::expect_many_in_flight(group);
}

TEST(NcclOneRank, TrainsAsTheModelAlone) { expect_losses_of_one(train(one_rank())); }

TEST(RanksOnLogicalDevices, HaveTheCollectives) {
  distributed::run(kDevices, [](const ProcessGroup& group) {
    testing::expect_reductions(group, 37);
    testing::expect_moves(group, 37);
    testing::expect_reductions(group, 100'003);
    testing::expect_moves(group, 100'003);
    testing::expect_many_in_flight(group);
    testing::expect_new_groups(group);
  });
}

TEST(RanksOnLogicalDevices, TrainAsOneModel) {
  std::mutex mutex;
  Values total(kSteps);
  distributed::run(kDevices, [&](const ProcessGroup& group) {
    const Values part = train(group);
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < part.size(); ++i) total[i] += part[i];
  });
  expect_losses_of_one(total);
}

}  // namespace gpu_ranks
}  // namespace lockstep
