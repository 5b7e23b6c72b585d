// SPDX-License-Identifier: Apache-2.0
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include "cuda/schedules.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

// Collectives of tensors on GPUs, which go through host memory: after what the streams hold, and
// before what is issued after `wait`. The order is the simulator's to judge.
namespace lockstep {
namespace process_group_cuda_test {

const std::vector<Device> kDevices = {"cuda:0", "cuda:1", "cuda:0"};

TEST(ProcessGroupCuda, ReducesBetweenTheStreamsWork) {
  testing::under_each_policy([] {
    distributed::run(kDevices, [](const distributed::ProcessGroup& group) {
      for (const std::int64_t count : {3, 3000}) {
        const Tensor value = full({count}, 1, {.device = group.device()});
        value.mul_(group.rank() + 1);
        const distributed::Work work = group.all_reduce(value);
        work.wait();
        value.mul_(2);
        EXPECT_EQ(value.to("cpu").to_vector<float>(),
                  std::vector<float>(static_cast<std::size_t>(count), 12));
        group.blocking().broadcast(value, 1);
        EXPECT_EQ(value.to("cpu").to_vector<float>()[0], 12);
      }
    });
  });
}

TEST(ProcessGroupCuda, GathersIntoSeveralTensorsAndSends) {
  testing::under_each_policy([] {
    distributed::run(kDevices, [](const distributed::ProcessGroup& group) {
      const Tensor mine = full({5}, group.rank(), {.device = group.device()});
      std::vector<Tensor> all;
      for (int r = 0; r < 3; ++r) all.push_back(zeros({5}, {.device = group.device()}));
      group.all_gather(all, mine).wait();
      for (std::size_t r = 0; r < 3; ++r) {
        EXPECT_EQ(all[r].to("cpu").to_vector<float>()[4], static_cast<float>(r));
      }
      const Tensor got = zeros({5}, {.device = group.device()});
      const distributed::Work receive = group.recv(got, (group.rank() + 2) % 3);
      const distributed::Work send = group.send(mine, (group.rank() + 1) % 3);
      receive.wait();
      send.wait();
      EXPECT_EQ(got.to("cpu").to_vector<float>()[0], static_cast<float>((group.rank() + 2) % 3));
    });
  });
}

}  // namespace process_group_cuda_test
}  // namespace lockstep
