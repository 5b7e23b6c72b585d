// SPDX-License-Identifier: Apache-2.0
#include <lockstep/device/device.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include <cudasim/cudasim.hpp>

#include "cuda/schedules.hpp"
#include "distributed/collective_cases.hpp"
#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

// Collectives of ranks that are threads on GPUs, of which two share one, so that they are copies
// and adds: after what the streams hold, and before what is issued after `wait`. The order is the
// simulator's to judge.
namespace lockstep {
namespace process_group_cuda_test {

using testing::throws;

const std::vector<Device> kDevices = {"cuda:0", "cuda:1", "cuda:0"};

TEST(ProcessGroupCuda, GivesTheBitsThatHostsGive) {
  distributed::run(kDevices, [](const distributed::ProcessGroup& group) {
    testing::expect_reductions(group, 37);
    testing::expect_moves(group, 37);
    testing::expect_reductions(group, 0);
    testing::expect_moves(group, 0);
  });
}

TEST(ProcessGroupCuda, ManyAreInFlightAndGroupsHaveTheirOwn) {
  testing::under_each_policy([] {
    distributed::run(kDevices, [](const distributed::ProcessGroup& group) {
      testing::expect_many_in_flight(group);
      testing::expect_new_groups(group);
    });
  });
}

// A rank alone has nobody to combine with.
TEST(ProcessGroupCuda, AWorldOfOne) {
  distributed::run({"cuda:1"}, [](const distributed::ProcessGroup& group) {
    testing::expect_reductions(group, 5);
    testing::expect_moves(group, 5);
  });
}

// Nothing goes through the host, and the host waits for nothing: page-locked memory, copies to and
// from it and synchronisations have no place in a collective.
TEST(ProcessGroupCuda, NothingGoesThroughTheHost) {
  std::vector<cudasim::Call> calls;
  distributed::run(kDevices, [&](const distributed::ProcessGroup& group) {
    const Tensor value = full({3000}, 1, {.device = group.device()});
    const auto in_turn = [&] { (void)group.blocking().all_reduce(value); };
    in_turn();
    (void)group.blocking().barrier();
    if (group.rank() == 0) cudasim::record_calls(true);
    (void)group.blocking().barrier();
    in_turn();
    (void)group.blocking().barrier();
    if (group.rank() == 0) calls = cudasim::take_calls();
    if (group.rank() == 0) cudasim::record_calls(false);
    (void)group.blocking().barrier();
    EXPECT_EQ(value.to("cpu").to_vector<float>()[2999], 9);
  });
  const auto made = [&](const char* function) {
    return std::count_if(calls.begin(), calls.end(),
                         [&](const auto& call) { return call.function == function; });
  };
  EXPECT_EQ(made("cudaStreamSynchronize"), 0);
  EXPECT_EQ(made("cudaEventSynchronize"), 0);
  EXPECT_EQ(made("cudaHostAlloc"), 0);
  EXPECT_EQ(made("cudaLaunchHostFunc"), 0);
  EXPECT_EQ(made("cudaLaunchKernel"), 3 * 2);  // each rank adds two ranks' elements to its share
  EXPECT_EQ(made("cudaMemcpyAsync"), 3 * 3);   // and gives it to all
}

TEST(ProcessGroupCuda, StridedTensorsArePacked) {
  testing::under_each_policy([] {
    distributed::run(kDevices, [](const distributed::ProcessGroup& group) {
      const Tensor matrix = full({40, 30}, group.rank() + 1, {.device = group.device()});
      (void)group.blocking().all_reduce(matrix.transpose(0, 1));
      EXPECT_EQ(matrix.to("cpu").to_vector<float>(), std::vector<float>(1200, 6));
    });
  });
}

TEST(ProcessGroupCuda, HostMemoryIsTakenAsWellButNotMixedWithGpus) {
  distributed::run(kDevices, [](const distributed::ProcessGroup& group) {
    const Tensor host = full({2000}, group.rank() + 1);
    (void)group.blocking().all_reduce(host);
    EXPECT_EQ(host.to_vector<float>()[1999], 6);
    const Tensor mixed =
        full({4}, 1, {.device = group.rank() == 1 ? Device("cpu") : group.device()});
    EXPECT_TRUE(throws<ValueError>([&] { (void)group.blocking().all_reduce(mixed); },
                                   "collectives do not match", "4 x f32 on a GPU", "rank 1 called",
                                   "4 x f32 in host memory"));
    if (group.rank() < 2) {
      const Tensor one = full({4}, 1, {.device = group.rank() == 1 ? Device("cpu") : "cuda:0"});
      const distributed::Work work = group.rank() == 0 ? group.send(one, 1) : group.recv(one, 0);
      EXPECT_TRUE(throws<ValueError>([&] { work.wait(); }, "messages do not match", "on a GPU",
                                     "in host memory"));
    }
  });
}

// Where one of the ranks is on a host device all data goes through host memory.
TEST(ProcessGroupCuda, ARankOnAHostDeviceTakesPart) {
  testing::under_each_policy([] {
    distributed::run({"cuda:0", "cpu:1"}, [](const distributed::ProcessGroup& group) {
      const Tensor value = full({3000}, group.rank() + 1, {.device = group.device()});
      (void)group.blocking().all_reduce(value);
      EXPECT_EQ(value.to("cpu").to_vector<float>()[2999], 3);
    });
  });
}

// Whatever a rank cannot issue is an error on all of them, and the group can be used on.
TEST(ProcessGroupCuda, AnErrorOnOneRankIsToldToAll) {
  distributed::run(kDevices, [](const distributed::ProcessGroup& group) {
    const Tensor value = full({3000}, 1, {.device = group.device()});
    (void)group.blocking().all_reduce(value);
    value.to("cpu");
    (void)group.blocking().barrier();
    if (group.rank() == 0) cudasim::fail_next("cudaLaunchKernel", cudaErrorLaunchFailure);
    (void)group.blocking().barrier();
    EXPECT_THROW((void)group.blocking().all_reduce(value), DeviceError);
    (void)group.blocking().barrier();
    cudasim::mend();
    (void)group.blocking().barrier();
    const Tensor other = full({3000}, 1, {.device = group.device()});
    (void)group.blocking().all_reduce(other);
    EXPECT_EQ(other.to("cpu").to_vector<float>()[0], 3);
  });
}

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
        (void)group.blocking().broadcast(value, 1);
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
      mine.mul_(2);  // which the message waits for
      const distributed::Work receive = group.recv(got, (group.rank() + 2) % 3);
      const distributed::Work send = group.send(mine, (group.rank() + 1) % 3);
      receive.wait();
      send.wait();
      mine.mul_(5);  // which waits for the message
      EXPECT_EQ(got.to("cpu").to_vector<float>()[0],
                static_cast<float>(2 * ((group.rank() + 2) % 3)));
    });
  });
}

}  // namespace process_group_cuda_test
}  // namespace lockstep
