// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/distributed/environment.hpp>
#include <lockstep/distributed/group/communication_thread.hpp>
#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/group/group_state.hpp>
#include <lockstep/distributed/group/group_watch.hpp>
#include <lockstep/distributed/group/rank_failure.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/distributed/store/file_store.hpp>
#include <lockstep/distributed/store/hash_store.hpp>
#include <lockstep/distributed/store/prefix_store.hpp>
#include <lockstep/distributed/store/store.hpp>
#include <lockstep/distributed/store/tcp_store.hpp>
#include <lockstep/distributed/thread/thread_carrier.hpp>
#include <lockstep/distributed/thread/thread_world.hpp>
#include <lockstep/distributed/watchdog/watchdog.hpp>
#include <lockstep/distributed/watchdog/watchdog_options.hpp>
#include <lockstep/nccl.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include <cudasim/cudasim.hpp>

#include "cuda/lost_results.hpp"
#include "cuda/schedules.hpp"
#include "data/files.hpp"
#include "support/allocation_faults.hpp"
#include "support/environment_variable.hpp"
#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// Process groups over NCCL: ranks that are threads of distributed::run, for which rank 0 speaks,
// and ranks with a communicator each, as processes have them (here threads with nothing in common
// but a store). Values are such that no order of a sum shows.
namespace lockstep {
namespace cuda_nccl_group_test {

using distributed::ProcessGroup;
using distributed::ReduceOp;
using distributed::WatchdogError;
using distributed::Work;
using testing::EnvironmentVariable;
using testing::throws;
using testing::under_each_policy;
using Values = std::vector<double>;
using Body = std::function<void(const ProcessGroup&)>;

const std::vector<Device> kDevices = {"cuda:2", "cuda:0", "cuda:1"};

// The ways in which ranks come by NCCL.
void in_threads(const Body& body) { distributed::run(kDevices, body); }

// As processes: body(rank) on a thread each, which forgets what results are lost.
void on_threads(std::size_t ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&body, rank] {
      try {
        body(static_cast<int>(rank));
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << " threw " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  testing::end_lost_results();
}

void as_processes(const Body& body) {
  distributed::HashStore store;
  on_threads(kDevices.size(), [&](int rank) {
    const Device device = kDevices[static_cast<std::size_t>(rank)];
    body(nccl::process_group(rank, static_cast<int>(kDevices.size()), device, store));
  });
}

void both_ways(const Body& body) {
  {
    SCOPED_TRACE("threads");
    in_threads(body);
  }
  SCOPED_TRACE("processes");
  as_processes(body);
}

Tensor filled(const ProcessGroup& group, std::int64_t count, double value,
              Dtype dtype = Dtype::f32) {
  return detail::cast(full({count}, value), dtype).to(group.device());
}

Values values_of(const Tensor& tensor) {
  const Tensor host = detail::cast(tensor.to("cpu"), Dtype::f64);
  const auto* first = host.const_data_ptr<double>();
  return Values(first, first + host.numel());
}

Values repeated(std::size_t count, double value) { return Values(count, value); }

TEST(NcclGroup, ReducesEveryDtypeWithEveryOperation) {
  struct Case {
    ReduceOp op;
    double result;  // of 1, 2 and 3
  };
  both_ways([](const ProcessGroup& group) {
    for (const Dtype dtype :
         {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16, Dtype::i64, Dtype::i32, Dtype::u8}) {
      for (const Case& each :
           {Case{ReduceOp::sum, 6}, Case{ReduceOp::avg, 2}, Case{ReduceOp::product, 6},
            Case{ReduceOp::min, 1}, Case{ReduceOp::max, 3}}) {
        if (each.op == ReduceOp::avg && !is_floating_point(dtype)) continue;
        const double brought = group.rank() + 1;
        const Tensor tensor = filled(group, 5, brought, dtype);
        group.all_reduce(tensor, each.op).wait();
        EXPECT_EQ(values_of(tensor), repeated(5, each.result)) << name(dtype) << name(each.op);
        const Tensor at_root = filled(group, 5, brought, dtype);
        group.reduce(at_root, 2, each.op).wait();
        EXPECT_EQ(values_of(at_root), repeated(5, group.rank() == 2 ? each.result : brought));
        const Tensor part = filled(group, 2, 0, dtype);
        group.reduce_scatter_tensor(part, filled(group, 6, brought, dtype), each.op).wait();
        EXPECT_EQ(values_of(part), repeated(2, each.result));
      }
    }
    // "or" and "and"
    const bool last = group.rank() == 2;
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::product, ReduceOp::min}) {
      const Tensor flags = filled(group, 3, last ? 1 : 0, Dtype::boolean);
      group.all_reduce(flags, op).wait();
      EXPECT_EQ(values_of(flags), repeated(3, op == ReduceOp::sum || op == ReduceOp::max ? 1 : 0));
    }
  });
}

TEST(NcclGroup, MovesPartsInOneTensorAndInSeveral) {
  both_ways([](const ProcessGroup& group) {
    const int rank = group.rank();
    const Tensor mine = filled(group, 4, rank + 1);
    const Tensor copy = filled(group, 4, rank + 1);
    group.broadcast(copy, 1).wait();
    EXPECT_EQ(values_of(copy), repeated(4, 2));

    const Tensor whole = filled(group, 12, 0);
    group.all_gather_into_tensor(whole, mine).wait();
    EXPECT_EQ(values_of(whole), (Values{1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3}));

    std::vector<Tensor> outputs;
    for (int r = 0; r < 3; ++r) outputs.push_back(filled(group, 4, 0));
    group.all_gather(outputs, mine).wait();
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(values_of(outputs[static_cast<std::size_t>(r)]), repeated(4, r + 1));
    }
    std::vector<Tensor> inputs;
    for (int r = 0; r < 3; ++r) inputs.push_back(filled(group, 4, 10 * r + rank));
    const Tensor part = filled(group, 4, 0);
    group.reduce_scatter(part, inputs).wait();
    EXPECT_EQ(values_of(part), repeated(4, 30 * rank + 3));

    group.scatter(part, rank == 1 ? inputs : std::vector<Tensor>{}, 1).wait();
    EXPECT_EQ(values_of(part), repeated(4, 10 * rank + 1));
    group.gather(mine, rank == 2 ? outputs : std::vector<Tensor>{}, 2).wait();
    for (int r = 0; rank == 2 && r < 3; ++r) {
      EXPECT_EQ(values_of(outputs[static_cast<std::size_t>(r)]), repeated(4, r + 1));
    }
    // Nothing is nothing.
    group.all_reduce(filled(group, 0, 0)).wait();
    const Tensor matrix = full({4, 3}, rank + 1, {.device = group.device()});
    group.all_reduce(matrix.transpose(0, 1)).wait();
    EXPECT_EQ(values_of(matrix), repeated(12, 6));
    group.barrier().wait();
  });
}

TEST(NcclGroup, SendsInTheOrderOfIssue) {
  both_ways([](const ProcessGroup& group) {
    const Tensor mine = filled(group, 6, group.rank() + 1);
    const Tensor got = filled(group, 6, 0);
    if (group.rank() == 0) {
      group.send(mine, 2).wait();
      group.recv(got, 2).wait();
      EXPECT_EQ(values_of(got), repeated(6, 3));
    } else if (group.rank() == 2) {
      group.recv(got, 0).wait();
      EXPECT_EQ(values_of(got), repeated(6, 1));
      group.send(mine, 0).wait();
    }
    group.barrier().wait();
  });
}

TEST(NcclGroup, GroupsOfSomeOfTheRanks) {
  both_ways([](const ProcessGroup& group) {
    const ProcessGroup turned = group.new_group({2, 0});
    EXPECT_EQ(turned.defined(), group.rank() != 1);
    if (turned) {
      EXPECT_EQ(turned.rank(), group.rank() == 2 ? 0 : 1);
      const Tensor number = filled(group, 3, group.rank());
      turned.broadcast(number, 0).wait();
      EXPECT_EQ(values_of(number), repeated(3, 2));
      turned.all_reduce(number).wait();
      EXPECT_EQ(values_of(number), repeated(3, 4));
    }
    const Tensor all = filled(group, 3, 1);
    group.all_reduce(all).wait();
    EXPECT_EQ(values_of(all), repeated(3, 3));
  });
}

TEST(NcclGroup, NewGroupOfDifferentRanksIsAnError) {
  both_ways([](const ProcessGroup& group) {
    const std::vector<int> ranks = group.rank() == 1 ? std::vector{0, 2, 1} : std::vector{0, 1, 2};
    EXPECT_TRUE(throws<ValueError>([&] { (void)group.new_group(ranks); }, "new_group: "));
    group.barrier().wait();
  });
}

// Order alone, which the simulator judges: after what the streams hold, before what follows `wait`,
// and memory that is given back meanwhile.
TEST(NcclGroup, StandsBetweenTheStreamsWork) {
  under_each_policy([] {
    both_ways([](const ProcessGroup& group) {
      const Tensor value = full({3000}, 1, {.device = group.device()});
      value.mul_(group.rank() + 1);
      Work work = group.all_reduce(value);
      {
        const Tensor dropped = full({2000}, group.rank(), {.device = group.device()});
        (void)group.all_reduce(dropped);  // nobody waits for it
      }
      work.wait();
      value.mul_(2);
      EXPECT_EQ(values_of(value), repeated(3000, 12));
      EXPECT_TRUE(work.is_completed());
      EXPECT_EQ(work.exception(), nullptr);
    });
  });
}

std::ptrdiff_t count_of(const std::vector<cudasim::Call>& calls, const std::string& function) {
  return std::count_if(calls.begin(), calls.end(),
                       [&](const auto& call) { return call.function == function; });
}

TEST(NcclGroup, ThreadsAreOneGroupOfCallsAndNothingGoesThroughTheHost) {
  std::vector<cudasim::Call> calls;
  in_threads([&](const ProcessGroup& group) {
    const Tensor value = filled(group, 300, 1);
    (void)group.blocking().all_reduce(value);
    (void)group.blocking().barrier();
    if (group.rank() == 0) cudasim::record_calls(true);
    (void)group.blocking().barrier();
    (void)group.blocking().all_reduce(value);
    (void)group.blocking().barrier();
    if (group.rank() == 0) calls = cudasim::take_calls();
    if (group.rank() == 0) cudasim::record_calls(false);
    (void)group.blocking().barrier();
    EXPECT_EQ(values_of(value), repeated(300, 9));
  });
  EXPECT_EQ(count_of(calls, "ncclGroupEnd"), 1);
  EXPECT_EQ(count_of(calls, "ncclAllReduce"), 3);
  EXPECT_EQ(count_of(calls, "cudaMemcpyAsync"), 0);
  EXPECT_EQ(count_of(calls, "cudaLaunchKernel"), 0);
  EXPECT_EQ(count_of(calls, "cudaStreamSynchronize"), 0);
}

// A rank that NCCL would wait for in vain is told before anything is started.
TEST(NcclGroup, CallsOfThreadsThatDoNotMatchAreAnError) {
  in_threads([](const ProcessGroup& group) {
    const Tensor value = filled(group, group.rank() == 2 ? 4 : 3, 1);
    EXPECT_TRUE(throws<ValueError>([&] { (void)group.blocking().all_reduce(value); },
                                   "collectives do not match", "rank 2 called"));
    const Tensor other = filled(group, 3, 1);
    (void)group.blocking().all_reduce(other);
    EXPECT_EQ(values_of(other), repeated(3, 3));
  });
}

TEST(NcclGroup, TheIdIsCarriedByATcpStoreAFileOrAnotherGroup) {
  const auto expect_sum = [](const ProcessGroup& group) {
    const Tensor value = filled(group, 3, group.rank() + 1);
    group.all_reduce(value).wait();
    EXPECT_EQ(values_of(value), repeated(3, 3));
  };
  const std::vector<Device> devices = {"cuda:0", "cuda:1"};
  {
    distributed::TCPStore server("localhost", {.port = 0, .is_server = true});
    on_threads(2, [&](int rank) {
      distributed::TCPStore store("localhost", {.port = server.port()});
      expect_sum(nccl::process_group(rank, 2, devices[static_cast<std::size_t>(rank)], store));
      expect_sum(nccl::process_group(rank, 2, devices[static_cast<std::size_t>(rank)], store));
    });
  }
  {
    const testing::TempDirectory folder;
    on_threads(2, [&](int rank) {
      distributed::FileStore store(folder / "store");
      expect_sum(nccl::process_group(rank, 2, devices[static_cast<std::size_t>(rank)], store));
    });
  }
  distributed::run({"cpu:0", "cpu:1"}, [&](const ProcessGroup& group) {
    expect_sum(nccl::process_group(group, devices[static_cast<std::size_t>(group.rank())]));
  });
}

TEST(NcclGroup, RefusesTwoRanksOnOneGpuAndWhatIsNoGpu) {
  distributed::HashStore store;
  on_threads(2, [&](int rank) {
    EXPECT_TRUE(throws<NcclError>([&] { (void)nccl::process_group(rank, 2, "cuda:1", store); },
                                  "one rank a GPU", "cuda:1", "Duplicate GPU"));
  });
  EXPECT_TRUE(throws<DeviceError>([&] { (void)nccl::process_group(0, 1, "cpu:0", store); },
                                  "NCCL connects GPUs, but rank 0 is on cpu:0"));
  EXPECT_TRUE(throws<ValueError>([&] { (void)nccl::process_group(2, 2, "cuda:0", store); },
                                 "rank 2 of 2 ranks"));
}

TEST(NcclGroup, TakesTensorsOnItsDeviceAlone) {
  as_processes([](const ProcessGroup& group) {
    EXPECT_TRUE(throws<DeviceError>([&] { (void)group.blocking().all_reduce(ones({3})); },
                                    "all_reduce(sum) of 3 x f32 on rank",
                                    "expected tensors on cuda:"));
    const Work work = group.send(ones({3}), (group.rank() + 1) % 3);
    EXPECT_TRUE(throws<DeviceError>([&] { work.wait(); }, "send on rank", "expected tensors on"));
    const Tensor value = filled(group, 3, 1);
    group.all_reduce(value).wait();
    EXPECT_EQ(values_of(value), repeated(3, 3));
  });
}

// The aborted calls have let go of the GPU, and whoever waits for it is told that it went on
// without what they should have given.
void expect_lost(Device device) {
  const auto wait = [device] { current_stream(device).synchronize(); };
  EXPECT_TRUE(throws<Error>(wait, "all_reduce(sum) of 3 x f32", "on rank 0, on cuda:3",
                            "which never came"));
  nccl::forget_lost_results(device);
  wait();
}

// Until NCCL tells of the rank that does not come, and then nothing is left waiting for it.
TEST(NcclGroupErrors, WhatWaitsForARankThatIsGoneFailsWithItsName) {
  const EnvironmentVariable unwatched("LOCKSTEP_WATCHDOG", "0");
  distributed::HashStore store;
  std::promise<void> promise;
  const std::future<void> gone = promise.get_future();
  on_threads(2, [&](int rank) {
    std::promise<void> mine;  // kept once the rank's group is gone
    if (rank == 1) mine = std::move(promise);
    const Device device = rank == 0 ? "cuda:3" : "cuda:4";
    const ProcessGroup group = nccl::process_group(rank, 2, device, store);
    const Tensor value = filled(group, 3, 1);
    (void)group.blocking().all_reduce(value);
    EXPECT_EQ(values_of(value), repeated(3, 2));
    (void)group.blocking().barrier();
    if (rank == 1) return;
    const Work waits = group.all_reduce(value);
    const Work behind = group.broadcast(value);
    waits.wait();  // for its issue
    behind.wait();
    gone.wait();  // its communicator asks for errors, too
    cudasim::fail_next("ncclCommGetAsyncError", cudaErrorUnknown);
    while (!behind.exception()) std::this_thread::yield();
    EXPECT_TRUE(throws<NcclError>([&] { waits.wait(); }, "all_reduce(sum) of 3 x f32", "on rank 0",
                                  "cuda:3", "remote process exited"));
    EXPECT_TRUE(throws<NcclError>([&] { behind.wait(); }, "broadcast of 3 x f32", "on rank 0"));
    EXPECT_TRUE(waits.is_completed());
    EXPECT_TRUE(throws<DeviceError>([&] { (void)group.blocking().all_reduce(value); },
                                    "cannot be used on rank 0, on cuda:3, any more",
                                    "remote process exited"));
    expect_lost(device);
  });
}

std::exception_ptr error_of(const Work& work) {
  while (!work.exception()) std::this_thread::yield();
  return work.exception();
}

TEST(NcclWatchdog, NamesTheRankThatLeavesAnOperationOut) {
  const EnvironmentVariable often("LOCKSTEP_HEARTBEAT_INTERVAL", "0.01");
  distributed::HashStore store;
  std::promise<void> promise;
  const std::future<void> issued = promise.get_future();
  on_threads(2, [&](int rank) {
    const Device device = rank == 0 ? "cuda:3" : "cuda:4";
    const ProcessGroup group = nccl::process_group(rank, 2, device, store);
    const Tensor value = filled(group, 3, 1);
    (void)group.blocking().all_reduce(value);
    if (rank == 1) return issued.wait();
    std::promise<void> mine = std::move(promise);  // kept, or broken at the end of this rank
    const Work waits = group.all_reduce(value);
    const Work behind = group.broadcast(value);
    behind.wait();  // for its issue, before which nothing fails
    mine.set_value();
    EXPECT_TRUE(throws<WatchdogError>(
        [&] { std::rethrow_exception(error_of(waits)); }, "all_reduce(sum) of 3 x f32 on rank 0",
        "cuda:3", "rank 1 has ended after collective #1",
        "rank 0 waits for it in collective #2, all_reduce(sum) of 3 x f32"));
    EXPECT_TRUE(throws<WatchdogError>([&] { std::rethrow_exception(error_of(behind)); },
                                      "broadcast of 3 x f32 with root 0 on rank 0",
                                      "rank 1 has ended"));
    EXPECT_TRUE(throws<DeviceError>([&] { (void)group.blocking().all_reduce(value); }, "any more",
                                    "rank 1 has ended"));
    expect_lost(device);
  });
}

// These block the communication thread itself.
TEST(NcclWatchdog, EndsABarrierAndASplitThatARankDoesNotComeTo) {
  const EnvironmentVariable often("LOCKSTEP_HEARTBEAT_INTERVAL", "0.01");
  for (const bool splits : {false, true}) {
    distributed::HashStore store;
    on_threads(2, [&](int rank) {
      const ProcessGroup group =
          nccl::process_group(rank, 2, rank == 0 ? "cuda:3" : "cuda:4", store);
      if (rank == 1) return;
      EXPECT_TRUE(throws<WatchdogError>(
          [&] {
            if (splits) {
              (void)group.new_group({0, 1});
            } else {
              (void)group.blocking().barrier();
            }
          },
          "rank 1 has ended without any collective", splits ? "new_group" : "barrier"));
    });
  }
}

// A group of some of the ranks is watched by its own numbers.
TEST(NcclWatchdog, WatchesGroupsOfSomeOfTheRanks) {
  const EnvironmentVariable often("LOCKSTEP_HEARTBEAT_INTERVAL", "0.01");
  as_processes([](const ProcessGroup& group) {
    const ProcessGroup part = group.new_group({2, 0});
    if (group.rank() == 2) (void)part.blocking().all_reduce(filled(group, 3, 1));
    if (group.rank() != 0) return;
    (void)part.blocking().all_reduce(filled(group, 3, 1));
    const Work waits = part.all_reduce(filled(group, 4, 1));
    EXPECT_TRUE(throws<WatchdogError>([&] { std::rethrow_exception(error_of(waits)); },
                                      "rank 2 has ended after collective #1",
                                      "all_reduce(sum) of 4 x f32 of the group of ranks 2, 0"));
    nccl::forget_lost_results(group.device());
  });
}

// Without an abort this would never return.
TEST(NcclWatchdog, TheEndOfAGroupDoesNotWaitForARankThatIsGone) {
  const EnvironmentVariable often("LOCKSTEP_HEARTBEAT_INTERVAL", "0.01");
  distributed::HashStore store;
  on_threads(2, [&](int rank) {
    const Device device = rank == 0 ? "cuda:3" : "cuda:4";
    {
      const ProcessGroup group = nccl::process_group(rank, 2, device, store);
      (void)group.blocking().all_reduce(filled(group, 3, 1));
      if (rank == 0) group.all_reduce(filled(group, 3, 1)).wait();
    }
    if (rank == 0) expect_lost(device);
  });
}

// Of two ranks, on the host.
ProcessGroup watched_group(int rank, const std::shared_ptr<distributed::detail::ThreadWorld>& world,
                           distributed::Store& store) {
  using namespace distributed::detail;
  const auto watchdog = std::make_shared<distributed::Watchdog>(
      rank, 2, store, distributed::WatchdogOptions{.interval = std::chrono::milliseconds(10)});
  return ProcessGroup(std::make_shared<GroupState>(std::make_unique<ThreadCarrier>(rank, 2, world),
                                                   std::make_shared<CommunicationThread>(),
                                                   Device(), GroupWatch(watchdog, {0, 1})));
}

TEST(NcclWatchdog, IsThatOfTheGroupThatCarriedTheId) {
  distributed::HashStore store;
  const auto world = std::make_shared<distributed::detail::ThreadWorld>(2);
  std::latch both_have_it(2);
  on_threads(2, [&](int rank) {
    const ProcessGroup carries = watched_group(rank, world, store);
    const ProcessGroup group = nccl::process_group(carries, rank == 0 ? "cuda:3" : "cuda:4");
    const Tensor value = filled(group, 3, 1);
    group.all_reduce(value).wait();
    EXPECT_EQ(values_of(value), repeated(3, 2));
    both_have_it.arrive_and_wait();
    if (rank == 1) return carries.impl()->watch().abort("it is tired");
    EXPECT_TRUE(
        throws<WatchdogError>([&] { std::rethrow_exception(error_of(group.all_reduce(value))); },
                              "rank 1 has failed: it is tired"));
    nccl::forget_lost_results(group.device());
  });
}

TEST(NcclTimeLimit, EndsWhatNobodyElseComesTo) {
  const EnvironmentVariable unwatched("LOCKSTEP_WATCHDOG", "0");
  const EnvironmentVariable limit("LOCKSTEP_COLLECTIVE_TIMEOUT", "0.25");
  distributed::HashStore store;
  on_threads(2, [&](int rank) {
    const Device device = rank == 0 ? "cuda:3" : "cuda:4";
    const ProcessGroup group = nccl::process_group(rank, 2, device, store);
    if (rank == 1) return;
    const Work waits = group.all_reduce(filled(group, 3, 1));
    EXPECT_TRUE(throws<NcclError>([&] { std::rethrow_exception(error_of(waits)); },
                                  "all_reduce(sum) of 3 x f32 on rank 0, on cuda:3",
                                  "has not ended within 0.25 s (LOCKSTEP_COLLECTIVE_TIMEOUT)"));
  });
  on_threads(2, [&](int rank) {
    const Device device = rank == 0 ? "cuda:3" : "cuda:4";
    const ProcessGroup group = nccl::process_group(rank, 2, device, store);
    if (rank == 1) return;
    EXPECT_TRUE(throws<NcclError>([&] { (void)group.blocking().barrier(); }, "barrier on rank 0",
                                  "has not ended within"));
  });
  // A message between ranks that are connected, and no more than the end of the group.
  const EnvironmentVariable longer("LOCKSTEP_COLLECTIVE_TIMEOUT", "2");
  on_threads(2, [&](int rank) {
    const Device device = rank == 0 ? "cuda:3" : "cuda:4";
    {
      const ProcessGroup group = nccl::process_group(rank, 2, device, store);
      const Tensor value = filled(group, 3, 1);
      (void)(rank == 0 ? group.blocking().send(value, 1) : group.blocking().recv(value, 0));
      if (rank == 0) group.send(value, 1).wait();
    }
    current_stream(device).synchronize();
  });
}

// The first operation connects the ranks, which takes all of them.
TEST(NcclTimeLimit, EndsTheFirstOperationWhereARankIsGone) {
  for (const bool watched : {false, true}) {
    const EnvironmentVariable limit("LOCKSTEP_COLLECTIVE_TIMEOUT", watched ? "300" : "0.25");
    const EnvironmentVariable often("LOCKSTEP_HEARTBEAT_INTERVAL", "0.01");
    const EnvironmentVariable variable("LOCKSTEP_WATCHDOG", watched ? "1" : "0");
    for (const bool sends : {false, true}) {
      if (watched && sends) continue;  // a rank that has said goodbye owes no message
      distributed::HashStore store;
      on_threads(2, [&](int rank) {
        const Device device = rank == 0 ? "cuda:3" : "cuda:4";
        const ProcessGroup group = nccl::process_group(rank, 2, device, store);
        if (rank == 1) return;
        const Tensor value = filled(group, 3, 1);
        const Work work = sends ? group.send(value, 1) : group.all_reduce(value);
        if (watched) {
          EXPECT_TRUE(throws<WatchdogError>([&] { work.wait(); },
                                            "rank 1 has ended without any collective"));
        } else {
          EXPECT_TRUE(throws<NcclError>([&] { work.wait(); }, "on rank 0, on cuda:3",
                                        "has not ended within 0.25 s"));
        }
      });
    }
  }
}

// NCCL may begin an operation until it is aborted, and the simulator sees what it would begin with.
TEST(NcclTimeLimit, MemoryForAnOperationOutlivesItsAbort) {
  const EnvironmentVariable unwatched("LOCKSTEP_WATCHDOG", "0");
  const EnvironmentVariable limit("LOCKSTEP_COLLECTIVE_TIMEOUT", "0.05");
  const std::vector<std::function<void(const ProcessGroup&)>> operations = {
      [](const ProcessGroup& group) { (void)group.blocking().barrier(); },
      [](const ProcessGroup& group) {
        (void)group.new_group({0, 1});
      },
      [](const ProcessGroup& group) {
        (void)group.blocking().all_gather({filled(group, 3, 0), filled(group, 3, 0)},
                                          filled(group, 3, 1));
      },
      [](const ProcessGroup& group) {
        (void)group.blocking().reduce_scatter(filled(group, 3, 0),
                                              {filled(group, 3, 1), filled(group, 3, 1)});
      }};
  for (const auto& operation : operations) {
    distributed::HashStore store;
    on_threads(2, [&](int rank) {
      const Device device = rank == 0 ? "cuda:3" : "cuda:4";
      const ProcessGroup group = nccl::process_group(rank, 2, device, store);
      if (rank == 1) return;
      EXPECT_TRUE(throws<NcclError>([&] { operation(group); }, "has not ended within 0.05 s"));
      current_stream(device).synchronize();
    });
  }
}

TEST(NcclConnecting, ARankThatNeverComesIsNamed) {
  for (const char* watched : {"0", "1"}) {
    const EnvironmentVariable variable("LOCKSTEP_WATCHDOG", watched);
    distributed::HashStore store(std::chrono::milliseconds(200));
    EXPECT_TRUE(
        throws<distributed::StoreError>([&] { (void)nccl::process_group(0, 2, "cuda:3", store); },
                                        "rank 0 of 2 has waited", "not there: rank 1"));
    distributed::HashStore other(std::chrono::milliseconds(200));
    for (const int rank : {1, 2}) {  // both are there, whichever goes on first
      distributed::PrefixStore own("nccl/1", {std::shared_ptr<void>(), &other});
      nccl::detail::RankArrivals(rank, 4, own, "here").arrive();
    }
    on_threads(2, [&](int rank) {
      EXPECT_TRUE(throws<distributed::StoreError>(
          [&] { (void)nccl::process_group(rank + 1, 4, "cuda:3", other); },
          "not there: rank 0, rank 3"));
    });
  }
}

// What process_group does up to where it connects.
nccl::detail::Meeting meet(int rank, distributed::Store& store) {
  distributed::PrefixStore own("nccl/1", {std::shared_ptr<void>(), &store});
  return nccl::detail::meet(own, rank, 2, "cuda:4");
}

// The time for connecting is counted from when all have come: another one, here.
TEST(NcclConnecting, ARankThatGoesMeanwhileIsNamed) {
  const EnvironmentVariable unwatched("LOCKSTEP_WATCHDOG", "0");
  distributed::HashStore store(std::chrono::seconds(20));
  on_threads(2, [&](int rank) {
    if (rank == 1) {
      (void)nccl::detail::share_id(1, "cuda:4", store);  // rank 0 is there
      store.set_timeout(std::chrono::milliseconds(200));
      return nccl::detail::RankArrivals(1, 2, store, "ready").arrive();
    }
    EXPECT_TRUE(throws<NcclError>([&] { (void)nccl::detail::connect_by(store, 0, 2, "cuda:3"); },
                                  "rank 0 of 2, on cuda:3, has waited for the others to connect",
                                  "for 0.2 s; not there any more: rank 1"));
  });
}

TEST(NcclConnecting, TheWatchdogEndsIt) {
  distributed::HashStore store;
  on_threads(2, [&](int rank) {
    if (rank == 1) return meet(1, store).watch.abort("it is tired");
    EXPECT_TRUE(throws<WatchdogError>([&] { (void)nccl::process_group(0, 2, "cuda:3", store); },
                                      "rank 1 has failed: it is tired"));
  });
}

// NCCL on the other rank would wait for it for ever.
void expect_that_the_other_is_told(const std::function<void(int)>& connect) {
  cudasim::fail_next("ncclCommInitRankConfig", cudaErrorLaunchFailure);
  std::atomic<int> failed = 0;
  std::atomic<int> told = 0;
  on_threads(2, [&](int rank) {
    try {
      connect(rank);
    } catch (const WatchdogError& error) {
      EXPECT_NE(std::string(error.what()).find("has failed: ncclCommInitRankConfig"),
                std::string::npos)
          << error.what();
      ++told;
    } catch (const NcclError&) {
      ++failed;
    }
  });
  EXPECT_EQ(failed, 1);
  EXPECT_EQ(told, 1);
}

TEST(NcclConnecting, ARankThatFailsTellsTheOthers) {
  distributed::HashStore store;
  expect_that_the_other_is_told([&](int rank) {
    (void)nccl::process_group(rank, 2, rank == 0 ? "cuda:3" : "cuda:4", store);
  });
}

// As processes have it that find each other by rank 0's store, which ends with it.
TEST(NcclConnecting, ARankThatFailsTellsTheOthersThoughItTakesTheStoreAlong) {
  std::promise<std::uint16_t> port;
  std::shared_future<std::uint16_t> served = port.get_future();
  expect_that_the_other_is_told([&](int rank) {
    if (rank == 0) {
      distributed::TCPStore store("localhost", {.port = 0, .is_server = true});
      port.set_value(store.port());
      (void)nccl::process_group(0, 2, "cuda:3", store);
    } else {
      distributed::TCPStore store("localhost", {.port = served.get()});
      (void)nccl::process_group(1, 2, "cuda:4", store);
    }
  });
}

TEST(NcclConnecting, ARankThatFailsTellsTheOthersOfTheGroupThatCarriedTheId) {
  distributed::HashStore store;
  const auto world = std::make_shared<distributed::detail::ThreadWorld>(2);
  expect_that_the_other_is_told([&](int rank) {
    (void)nccl::process_group(watched_group(rank, world, store), rank == 0 ? "cuda:3" : "cuda:4");
  });
}

TEST(NcclConnecting, WaitsForASlowRank) {
  distributed::HashStore store;
  cudasim::record_calls(true);
  on_threads(2, [&](int rank) {
    const auto expect_sum = [&](const ProcessGroup& group) {
      const Tensor value = filled(group, 3, rank + 1);
      group.all_reduce(value).wait();
      EXPECT_EQ(values_of(value), repeated(3, 3));
    };
    if (rank == 0) return expect_sum(nccl::process_group(0, 2, "cuda:3", store));
    const nccl::detail::Meeting met = meet(1, store);
    std::ptrdiff_t looks = 0;
    while (looks < 3) looks += count_of(cudasim::take_calls(), "ncclCommGetAsyncError");
    expect_sum(nccl::detail::connect(1, 2, "cuda:4", met.id, met.watch,
                                     distributed::detail::Deadline(store.timeout()),
                                     [] { return ""; }));
  });
  cudasim::record_calls(false);
  (void)cudasim::take_calls();
}

TEST(NcclStore, LeavesTorchrunItsPort) {
  const auto port = [](int master_port) {
    distributed::LaunchEnvironment environment;
    environment.master_port = master_port;
    return nccl::detail::store_port(environment);
  };
  {
    const EnvironmentVariable torchrun("TORCHELASTIC_USE_AGENT_STORE", "True");
    EXPECT_EQ(port(29400), 29401);
    EXPECT_EQ(port(65535), 65534);
    EXPECT_EQ(port(0), 29500);
  }
  const EnvironmentVariable torchrun("TORCHELASTIC_USE_AGENT_STORE", "False");
  EXPECT_EQ(port(29400), 29400);
}

TEST(NcclGroupErrors, ACallThatFailsEndsTheCommunicator) {
  distributed::HashStore store;
  const ProcessGroup group = nccl::process_group(0, 1, "cuda:5", store);
  const Tensor value = filled(group, 3, 1);
  cudasim::fail_next("ncclAllReduce", cudaErrorLaunchFailure);
  EXPECT_TRUE(throws<NcclError>([&] { (void)group.blocking().all_reduce(value); },
                                "all_reduce(sum) of 3 x f32 on rank 0, on cuda:5",
                                "ncclAllReduce"));
  EXPECT_TRUE(throws<DeviceError>([&] { (void)group.blocking().all_reduce(value); }, "any more"));
  EXPECT_TRUE(throws<DeviceError>([&] { (void)group.new_group({0}); }, "any more"));
}

// Wherever the memory for it ends.
TEST(NcclGroupErrors, AGroupThatIsNotMadeKeepsNoCommunicator) {
  std::ptrdiff_t made = 0;
  std::ptrdiff_t ended = 0;
  bool failed = true;
  for (std::uint64_t n = 0; failed; ++n) {
    distributed::HashStore store;
    cudasim::record_calls(true);
    testing::fail_allocation(n);
    try {
      (void)nccl::process_group(0, 1, "cuda:5", store);
    } catch (const std::bad_alloc&) {
    }
    failed = testing::end_allocation_faults();
    for (const cudasim::Call& call : cudasim::take_calls()) {
      made += call.function == "ncclCommInitRankConfig" ? 1 : 0;
      ended += call.function == "ncclCommAbort" || call.function == "ncclCommDestroy" ? 1 : 0;
    }
    cudasim::record_calls(false);
    EXPECT_EQ(ended, made) << "allocation " << n;
  }
  EXPECT_GT(made, 1);
}

// DataParallel's communicators are asked before each use, too.
TEST(NcclGroupErrors, AThreadsCommunicatorThatHasMetAnErrorIsNotUsedAgain) {
  EXPECT_TRUE(throws<DeviceError>(
      [] {
        distributed::run({"cuda:6", "cuda:5"}, [](const ProcessGroup& group) {
          const Tensor value = filled(group, 3, 1);
          (void)group.blocking().all_reduce(value);
          (void)group.blocking().barrier();
          if (group.rank() == 0) {
            cudasim::fail_next("ncclCommGetAsyncError", cudaErrorUnknown);
          }
          (void)group.blocking().barrier();
          EXPECT_THROW((void)group.blocking().all_reduce(value), DeviceError);
          (void)group.blocking().all_reduce(value);
        });
      },
      "cannot be used on cuda:6, cuda:5 any more", "remote process exited"));
  testing::end_lost_results({"cuda:6", "cuda:5"});  // where nothing has made them run
}

// Calls of some ranks alone would wait for the others: in a communicator's first group on the host,
// later on the GPUs.
TEST(NcclCalls, AGroupThatAnExceptionLeavesStartsNothing) {
  const std::vector<Device> devices = {"cuda:5", "cuda:7"};
  const int gpus[] = {5, 7};
  std::vector<ncclComm_t> comms(2);
  ASSERT_EQ(ncclCommInitAll(comms.data(), 2, gpus), ncclSuccess);
  for (const double value : {1.0, 2.0}) {
    std::vector<Tensor> tensors;
    for (const Device& device : devices) tensors.push_back(full({4}, value).to(device));
    tensors[1].zero_();
    const auto broadcast = [&](std::size_t rank) {
      void* const data = tensors[rank].impl()->data();
      const Stream stream = default_stream(devices[rank]);
      ASSERT_EQ(ncclBroadcast(data, data, 4, ncclFloat32, 0, comms[rank],
                              static_cast<cuda::CudaStream&>(stream.state()).bare_handle()),
                ncclSuccess);
    };
    EXPECT_TRUE(throws<std::runtime_error>(
        [&] {
          const cuda::NcclGroup calls(devices, comms[0]);
          broadcast(0);
          throw std::runtime_error("no more calls");
        },
        "no more calls"));
    EXPECT_EQ(values_of(tensors[1]), repeated(4, 0));
    cuda::NcclGroup calls(devices, comms[0]);
    broadcast(0);
    broadcast(1);
    calls.start();
    for (const Tensor& tensor : tensors) EXPECT_EQ(values_of(tensor), repeated(4, value));
  }
  for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

TEST(NcclCalls, ACommunicatorWhoseGroupAnExceptionLeavesIsNotUsedAgain) {
  cuda::Communicator communicator({"cuda:5", "cuda:7"});
  const Tensor tensor = ones({4}, {.device = "cuda:5"});
  const Stream stream = default_stream("cuda:5");
  const auto group = [&] {
    communicator.group([&](std::size_t rank, ncclComm_t comm) {
      if (rank == 1) throw std::runtime_error("no more calls");
      void* const data = tensor.impl()->data();
      cuda::check_nccl(ncclBroadcast(data, data, 4, ncclFloat32, 0, comm,
                                     static_cast<cuda::CudaStream&>(stream.state()).bare_handle()),
                       "ncclBroadcast", communicator.devices(), comm);
    });
  };
  EXPECT_TRUE(throws<std::runtime_error>(group, "no more calls"));
  EXPECT_TRUE(
      throws<DeviceError>(group, "cannot be used on cuda:5, cuda:7 any more", "no more calls"));
  EXPECT_EQ(values_of(tensor), repeated(4, 1));
}

}  // namespace cuda_nccl_group_test
}  // namespace lockstep
