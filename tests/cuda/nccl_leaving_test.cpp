// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/host/task_queue.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/distributed/group/group_watch.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/distributed/store/hash_store.hpp>
#include <lockstep/distributed/store/prefix_store.hpp>
#include <lockstep/distributed/store/store.hpp>
#include <lockstep/distributed/watchdog/watchdog.hpp>
#include <lockstep/distributed/work.hpp>
#include <lockstep/error.hpp>
#include <lockstep/nccl.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include <cudasim/cudasim.hpp>

#include "cuda/lost_results.hpp"
#include "support/count_operator_new.hpp"
#include "support/environment_variable.hpp"
#include "support/expect_error.hpp"
#include "support/sanitizers.hpp"

#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// A rank that leaves a group of NCCL's, and what is in flight then: nobody waits for it in vain,
// and nobody takes what is in its memory for its result.
namespace lockstep {
namespace cuda_nccl_leaving_test {

using distributed::ProcessGroup;
using distributed::WatchdogError;
using distributed::Work;
using testing::EnvironmentVariable;
using testing::throws;
using Values = std::vector<float>;

const std::vector<Device> kDevices = {"cuda:3", "cuda:4", "cuda:5"};

// Ranks as processes: body(rank) on a thread each, with what they have in common. It forgets what
// results are lost.
void on_threads(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&body, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << " threw " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  testing::end_lost_results();
}

ProcessGroup group_of(int rank, int size, distributed::Store& store) {
  return nccl::process_group(rank, size, kDevices[static_cast<std::size_t>(rank)], store);
}

Tensor filled(const ProcessGroup& group, const Shape& shape, double value) {
  return full(shape, value).to(group.device());
}
Values values_of(const Tensor& tensor) { return tensor.to("cpu").to_vector<float>(); }

std::exception_ptr error_of(const Work& work) {
  while (!work.exception()) std::this_thread::yield();
  return work.exception();
}

// In the thread that communicates.
void in_its_thread(const ProcessGroup& group, void (*function)()) {
  group.impl()->thread()->issue(detail::Task([function]() noexcept { function(); }));
  group.impl()->thread()->drain();
}

// A collective of which every allocation fails in the thread that communicates, so that the rank
// leaves.
void leave_without_memory(const ProcessGroup& group) {
  // Nobody knows when the GPU has done with it.
  const Tensor columns = [&] {
    const testing::MayLeak memory;
    return filled(group, {4, 6}, 1).t().narrow(0, 1, 2);
  }();
  in_its_thread(group, [] { testing::fail_allocation(0, true); });
  const Work work = [&] {
    const testing::MayLeak packed;
    return group.all_reduce(columns);
  }();
  EXPECT_THROW(work.wait(), std::bad_alloc);
  in_its_thread(group, [] { EXPECT_TRUE(testing::end_allocation_faults()); });
}

TEST(NcclLeaving, WithoutMemoryEndsWhatIsInFlightAndTellsTheOthers) {
  const EnvironmentVariable often("LOCKSTEP_HEARTBEAT_INTERVAL", "0.01");
  distributed::HashStore store;
  // Kept by a rank, or broken at its end: rank 1 has its first result, and rank 0 has left.
  std::promise<void> promises[2];
  const std::future<void> read = promises[1].get_future();
  const std::future<void> left = promises[0].get_future();
  on_threads(2, [&](int rank) {
    const ProcessGroup group = group_of(rank, 2, store);
    std::promise<void> mine = std::move(promises[rank]);
    const Tensor value = filled(group, {3}, 1);
    (void)group.blocking().all_reduce(value);
    EXPECT_EQ(values_of(value), Values(3, 2));  // then both have issued it
    if (rank == 1) {
      mine.set_value();
      left.wait();
      const Work work = group.all_reduce(value);
      EXPECT_TRUE(throws<WatchdogError>([&] { std::rethrow_exception(error_of(work)); },
                                        "on rank 1", "rank 0 has failed: std::bad_alloc"));
      nccl::forget_lost_results(group.device());
      return;
    }
    const Work flies = group.all_reduce(value);
    flies.wait();  // for its issue
    read.wait();
    leave_without_memory(group);
    EXPECT_THROW(flies.wait(), std::bad_alloc);
    EXPECT_TRUE(throws<NcclError>([&] { (void)values_of(value); }, "no memory to say why",
                                  "nccl::forget_lost_results"));
    EXPECT_TRUE(throws<DeviceError>([&] { (void)group.blocking().all_reduce(value); },
                                    "cannot be used on rank 0, on cuda:3, any more"));
    nccl::forget_lost_results(group.device());
  });
}

TEST(NcclLeaving, BecauseOfWhateverTellsTheOthers) {
  const EnvironmentVariable often("LOCKSTEP_HEARTBEAT_INTERVAL", "0.01");
  distributed::HashStore store;
  std::promise<void> connected;
  on_threads(2, [&](int rank) {
    if (rank == 0) {
      const ProcessGroup group = group_of(0, 2, store);
      connected.set_value();
      const Work work = group.all_reduce(filled(group, {3}, 1));
      EXPECT_TRUE(throws<WatchdogError>([&] { std::rethrow_exception(error_of(work)); },
                                        "rank 1 has failed: int"));
      return;
    }
    // What process_group makes.
    distributed::PrefixStore own("nccl/1", {std::shared_ptr<void>(), &store});
    const nccl::detail::Meeting met = nccl::detail::meet(own, 1, 2, kDevices[1]);
    auto comm = cuda::connect_rank(1, 2, met.id, kDevices[1], [&] { met.watch.check(); });
    cuda::NcclCarrier carrier(1, 2, kDevices[1], std::move(comm), met.watch,
                              std::chrono::seconds(300));
    connected.get_future().wait();
    carrier.leave(std::make_exception_ptr(42));
  });
}

// NCCL knows first that a rank is gone, but not which.
TEST(NcclLeaving, NoRankIsBlamedForWhatNcclTellsItOfAnother) {
  const EnvironmentVariable often("LOCKSTEP_HEARTBEAT_INTERVAL", "0.01");
  distributed::HashStore store;
  std::barrier<> summed(3);
  std::barrier<> told(3);
  std::barrier<> failed(3);
  on_threads(3, [&](int rank) {
    const ProcessGroup group = group_of(rank, 3, store);
    const Tensor value = filled(group, {3}, 1);
    (void)group.blocking().all_reduce(value);
    EXPECT_EQ(values_of(value), Values(3, 3));
    (void)group.blocking().barrier();  // after which nothing is in flight
    summed.arrive_and_wait();
    const auto expect_blame = [&](const Work& work) {
      EXPECT_TRUE(throws<WatchdogError>([&] { std::rethrow_exception(error_of(work)); },
                                        detail::str("on rank ", rank),
                                        "rank 2 has failed: std::bad_alloc"));
    };
    Work flies;
    if (rank == 0) {
      flies = group.all_reduce(value);
      flies.wait();  // for its issue
      cudasim::record_calls(true);
      cudasim::fail_next("ncclCommGetAsyncError", cudaErrorUnknown);
      const auto asked = [] {
        for (const cudasim::Call& call : cudasim::take_calls()) {
          if (call.function == "ncclCommGetAsyncError") return true;
        }
        return false;
      };
      while (!asked()) std::this_thread::yield();
      cudasim::record_calls(false);
    }
    told.arrive_and_wait();
    if (rank == 2) leave_without_memory(group);
    if (rank == 0) expect_blame(flies);
    failed.arrive_and_wait();
    if (rank == 1) expect_blame(group.all_reduce(value));
    nccl::forget_lost_results(group.device());
  });
}

// Its watchdog tells of ranks, not of groups.
TEST(NcclLeaving, EndsTheGroupsThatHaveItsWatchdogAndNoOther) {
  const EnvironmentVariable often("LOCKSTEP_HEARTBEAT_INTERVAL", "0.01");
  distributed::HashStore store;
  std::barrier<> summed(3);
  on_threads(3, [&](int rank) {
    const ProcessGroup other = group_of(rank, 3, store);
    const ProcessGroup whole = group_of(rank, 3, store);
    const ProcessGroup sibling = whole.new_group({0, 2});
    const ProcessGroup part = whole.new_group({0, 1});
    const Tensor value = filled(whole, {3}, 1);
    (void)whole.blocking().all_reduce(value);
    EXPECT_EQ(values_of(value), Values(3, 3));
    summed.arrive_and_wait();
    if (rank == 1) leave_without_memory(part);
    const auto expect_end = [&](const ProcessGroup& group) {
      EXPECT_TRUE(throws<Error>([&] { std::rethrow_exception(error_of(group.all_reduce(value))); },
                                rank == 1 && &group == &part ? "any more" : "rank 1 has failed"));
    };
    if (part) expect_end(part);
    if (sibling) expect_end(sibling);
    expect_end(whole);
    nccl::forget_lost_results(kDevices[static_cast<std::size_t>(rank)]);
    const Tensor sum = filled(other, {3}, rank);
    (void)other.blocking().all_reduce(sum);
    EXPECT_EQ(values_of(sum), Values(3, 3));
  });
}

// The group that the rank leaves is behind another one on the GPU, which waits for a rank that does
// not come: both end, or the end of neither would come.
TEST(NcclLeaving, EndsWhatItsWorkIsBehind) {
  for (const char* const watched : {"1", "0"}) {
    const EnvironmentVariable watchdog("LOCKSTEP_WATCHDOG", watched);
    distributed::HashStore store;
    std::promise<void> promise;
    const std::future<void> left = promise.get_future();
    on_threads(2, [&](int rank) {
      std::promise<void> mine;  // broken once the rank's groups are gone
      if (rank == 0) mine = std::move(promise);
      const ProcessGroup whole = group_of(rank, 2, store);
      const ProcessGroup part = whole.new_group({0, 1});
      const Tensor value = filled(whole, {3}, 1);
      (void)whole.blocking().all_reduce(value);
      (void)part.blocking().all_reduce(value);
      EXPECT_EQ(values_of(value), Values(3, 4));
      if (rank == 1) return left.wait();
      const Work first = whole.all_reduce(value);
      first.wait();  // on the stream, for which the next one waits
      const Work second = part.all_reduce(value);
      second.wait();
      leave_without_memory(part);
      EXPECT_NE(error_of(first), nullptr);
      EXPECT_NE(error_of(second), nullptr);
      for (const ProcessGroup& group : {whole, part}) {
        EXPECT_TRUE(
            throws<Error>([&] { (void)group.blocking().all_reduce(value); }, "all_reduce(sum)"));
      }
      nccl::forget_lost_results(whole.device());
    });
  }
}

// Rank 1 brings nothing, and rank 0's communicator is told so by NCCL.
void expect_lost(const std::string& operation,
                 const std::function<Work(const ProcessGroup&, const Tensor&)>& issue) {
  const EnvironmentVariable unwatched("LOCKSTEP_WATCHDOG", "0");
  distributed::HashStore store;
  std::promise<void> promise;
  const std::future<void> gone = promise.get_future();
  on_threads(2, [&](int rank) {
    std::promise<void> mine;  // kept once the rank's group is gone
    if (rank == 1) mine = std::move(promise);
    const ProcessGroup group = group_of(rank, 2, store);
    const Tensor value = filled(group, {3}, 1);
    (void)group.blocking().all_reduce(value);
    if (rank == 0) group.send(value, 1).wait();
    if (rank == 0) group.recv(value, 1).wait();
    if (rank == 1) group.recv(value, 0).wait();
    if (rank == 1) group.send(value, 0).wait();
    EXPECT_EQ(values_of(value), Values(3, 2));
    if (rank == 1) return;
    issue(group, value).wait();  // as if it were there
    const Tensor of_it = full({3}, 1, {.device = group.device()});
    of_it.add_(value);
    const Event after = current_stream(group.device()).record_event();
    gone.wait();  // its communicator asks for errors, too
    cudasim::fail_next("ncclCommGetAsyncError", cudaErrorUnknown);
    const auto told = [&](const std::function<void()>& read) {
      return throws<NcclError>(read, operation, "on rank 0, on cuda:3: ncclCommGetAsyncError",
                               "which never came",
                               "nccl::forget_lost_results(\"cuda:3\") ends this error");
    };
    EXPECT_TRUE(told([&] { (void)values_of(of_it); }));
    EXPECT_TRUE(told([&] { (void)values_of(value); }));
    EXPECT_TRUE(told([&] { after.synchronize(); }));
    EXPECT_TRUE(told([&] { synchronize(group.device()); }));
    nccl::forget_lost_results(group.device());
    value.fill_(7);
    EXPECT_EQ(values_of(value), Values(3, 7));
  });
}

TEST(NcclLostResults, OfACollectiveThatWasWaitedForAreAnErrorToWhoReads) {
  expect_lost("all_reduce(sum) of 3 x f32", [](const ProcessGroup& group, const Tensor& value) {
    return group.all_reduce(value);
  });
}

TEST(NcclLostResults, OfAMessageThatWasWaitedForAreAnErrorToWhoReads) {
  expect_lost("recv of 3 x f32 with rank 1",
              [](const ProcessGroup& group, const Tensor& value) { return group.recv(value, 1); });
}

// Ranks that are threads, and DataParallel, share communicators, which fail as a whole.
TEST(NcclLostResults, OfThreadsAreAnErrorToWhoReads) {
  const std::vector<Device> devices = {"cuda:7", "cuda:6"};
  cudasim::set_policy(cudasim::Policy::lazy);
  distributed::run(devices, [](const ProcessGroup& group) {
    const Tensor value = filled(group, {3}, 1);
    (void)group.blocking().all_reduce(value);
    EXPECT_EQ(values_of(value), Values(3, 2));
    (void)group.blocking().all_reduce(value);  // nothing makes it run
    (void)group.blocking().barrier();
    if (group.rank() == 0) cudasim::fail_next("ncclCommGetAsyncError", cudaErrorUnknown);
    (void)group.blocking().barrier();
    EXPECT_TRUE(throws<DeviceError>([&] { (void)group.blocking().all_reduce(value); },
                                    "remote process exited"));
    EXPECT_TRUE(throws<NcclError>(
        [&] { (void)values_of(value); }, "ncclCommGetAsyncError on cuda:7", "which never came",
        detail::str("nccl::forget_lost_results(\"", group.device(), "\")")));
  });
  testing::end_lost_results(devices);
}

// The calls of a group that was not started cost nothing but the group.
TEST(NcclLostResults, AreNoneWhereACallIsRefused) {
  const std::vector<Device> devices = {"cuda:7", "cuda:5"};
  cudasim::set_policy(cudasim::Policy::lazy);
  distributed::run(devices, [](const ProcessGroup& group) {
    const Tensor value = filled(group, {3}, 1);
    (void)group.blocking().all_reduce(value);
    const Tensor other = filled(group, {3}, 1);
    (void)group.blocking().all_reduce(value);  // nothing makes it run
    (void)group.blocking().barrier();
    if (group.rank() == 0) cudasim::fail_next("ncclAllReduce", cudaErrorUnknown);
    (void)group.blocking().barrier();
    EXPECT_TRUE(throws<DeviceError>([&] { (void)group.blocking().all_reduce(other); },
                                    "ncclAllReduce on cuda:7"));
    EXPECT_EQ(values_of(value), Values(3, 4));
    EXPECT_EQ(values_of(other), Values(3, 1));
  });
  testing::end_lost_results();
}

// The streams wait for what the program has computed, but not for a collective.
TEST(NcclLostResults, AreNoneWhereEveryCollectiveHasEnded) {
  cudasim::set_policy(cudasim::Policy::lazy);
  distributed::run({"cuda:6", "cuda:4"}, [](const ProcessGroup& group) {
    const Tensor value = filled(group, {3}, 1);
    (void)group.blocking().all_reduce(value);
    EXPECT_EQ(values_of(value), Values(3, 2));
    value.mul_(3);  // nothing makes it run
    const Tensor other = full({3}, 1, {.device = group.device()});
    (void)group.blocking().barrier();
    if (group.rank() == 0) cudasim::fail_next("ncclGroupEnd", cudaErrorUnknown);
    (void)group.blocking().barrier();
    EXPECT_TRUE(throws<DeviceError>([&] { (void)group.blocking().all_reduce(other); },
                                    "ncclGroupEnd on cuda:6, cuda:4"));
    EXPECT_EQ(values_of(value), Values(3, 6));
  });
  testing::end_lost_results();
}

// A refused call aborts nothing, and what it leaves in flight may still meet an error.
TEST(NcclLostResults, OfWhatARefusedCallHasLeftInFlightAreAnErrorToWhoReads) {
  const std::vector<Device> devices = {"cuda:6", "cuda:3"};
  cudasim::set_policy(cudasim::Policy::lazy);
  distributed::run(devices, [](const ProcessGroup& group) {
    const Tensor value = filled(group, {3}, 1);
    (void)group.blocking().all_reduce(value);
    const Tensor other = filled(group, {3}, 1);
    (void)group.blocking().all_reduce(value);  // nothing makes it run
    const auto expect_failure = [&](const char* injected) {
      (void)group.blocking().barrier();
      if (group.rank() == 0) cudasim::fail_next(injected, cudaErrorUnknown);
      (void)group.blocking().barrier();
      EXPECT_TRUE(throws<DeviceError>([&] { (void)group.blocking().all_reduce(other); },
                                      "ncclAllReduce on cuda:6"));
    };
    expect_failure("ncclAllReduce");
    expect_failure("ncclCommGetAsyncError");
    EXPECT_TRUE(throws<NcclError>([&] { (void)values_of(value); },
                                  "ncclCommGetAsyncError on cuda:6", "which never came"));
    EXPECT_TRUE(throws<DeviceError>([&] { (void)group.blocking().all_reduce(other); },
                                    "ncclAllReduce on cuda:6"));
  });
  testing::end_lost_results(devices);
}

}  // namespace cuda_nccl_leaving_test
}  // namespace lockstep
