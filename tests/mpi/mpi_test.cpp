// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/streams.hpp>
#include <lockstep/distributed/collectives.hpp>
#include <lockstep/distributed/environment.hpp>
#include <lockstep/distributed/group/group_state.hpp>
#include <lockstep/distributed/init.hpp>
#include <lockstep/error.hpp>
#include <lockstep/mpi.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/from_blob.hpp>

#include "distributed/collective_cases.hpp"
#include "mpi/failing_calls.hpp"
#include "support/allocation_faults.hpp"
#include "support/count_operator_new.hpp"
#include "support/environment_variable.hpp"
#include "support/error_of.hpp"
#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using ls::testing::error_of;
using ls::testing::throws;

namespace mpi_test {

// Whether looking for a message from any rank is an error, as it may be once a rank is gone.
bool any_source_fails = false;

// How many messages have been sent.
std::atomic<int> messages_sent{0};

}  // namespace mpi_test

// In MPI's place, which has them under these names, too.
extern "C" {

int MPI_Improbe(int source, int tag, MPI_Comm comm, int* found, MPI_Message* message,
                MPI_Status* status) {
  if (mpi_test::any_source_fails && source == MPI_ANY_SOURCE) return MPI_ERR_OTHER;
  int is_there = 0;
  PMPI_Iprobe(source, tag, comm, &is_there, MPI_STATUS_IGNORE);
  if (is_there && mpi_test::call_fails()) return MPI_ERR_OTHER;
  return PMPI_Improbe(source, tag, comm, found, message, status);
}
int MPI_Test(MPI_Request* request, int* ended, MPI_Status* status) {
  const int code = PMPI_Test(request, ended, status);
  return *ended && mpi_test::call_fails() ? MPI_ERR_OTHER : code;
}
int MPI_Isend(const void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request* request) {
  if (mpi_test::call_fails()) return MPI_ERR_OTHER;
  ++mpi_test::messages_sent;
  return PMPI_Isend(data, count, type, peer, tag, comm, request);
}
int MPI_Imrecv(void* data, int count, MPI_Datatype type, MPI_Message* message,
               MPI_Request* request) {
  if (mpi_test::call_fails()) return MPI_ERR_OTHER;
  return PMPI_Imrecv(data, count, type, message, request);
}
int MPI_Get_count(const MPI_Status* status, MPI_Datatype type, int* count) {
  if (mpi_test::call_fails()) return MPI_ERR_OTHER;
  return PMPI_Get_count(status, type, count);
}
int MPI_Comm_idup(MPI_Comm comm, MPI_Comm* copy, MPI_Request* request) {
  if (mpi_test::call_fails()) return MPI_ERR_OTHER;
  return PMPI_Comm_idup(comm, copy, request);
}
int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  if (mpi_test::call_fails()) return MPI_ERR_OTHER;
  return PMPI_Ibarrier(comm, request);
}

}  // extern "C"

namespace mpi_test {

// One whose ranks compare their calls.
dist::ProcessGroup watched_world() {
  const ls::testing::EnvironmentVariable debug("LOCKSTEP_DISTRIBUTED_DEBUG", "DETAIL");
  return ls::mpi::process_group();
}

// The program finalises MPI, at the end of all tests, while there are groups.
class Finalize : public ::testing::Environment {
 public:
  void TearDown() override {
    dist::ProcessGroup group = ls::mpi::process_group();
    const ls::Tensor value = ls::ones({2});
    const int peer = (group.rank() + 1) % group.size();
    const dist::Work received = group.recv(value, peer);
    group.barrier().wait();
    const auto finalize = [] { EXPECT_EQ(MPI_Finalize(), MPI_SUCCESS); };
    group.impl()->thread()->between_operations(finalize);
    const auto fails = [](const auto& call) {
      EXPECT_TRUE(throws<ls::Error>(call, "MPI has been finalised"));
    };
    fails([&] { received.wait(); });
    fails([&] { group.all_reduce(value).wait(); });
    fails([&] { (void)group.blocking().barrier(); });
    // One to the rank itself has ended at once.
    if (peer != group.rank()) fails([&] { group.send(value, peer).wait(); });
    fails([&] { (void)group.new_group({0}); });
    fails([] { (void)ls::mpi::process_group(); });
    ls::testing::fail_allocation(0);  // so that it leaves the group
    EXPECT_THROW((void)group.all_reduce(value), std::bad_alloc);
    EXPECT_TRUE(ls::testing::end_allocation_faults());
    group = {};
    dist::destroy_process_group();
  }
};
const ::testing::Environment* const finalize =
    ::testing::AddGlobalTestEnvironment(std::make_unique<Finalize>().release());

TEST(Mpi, TheLauncherAndMpiAgree) {
  const dist::LaunchEnvironment environment = dist::launch_environment();
  EXPECT_FALSE(environment.launcher.empty());
  EXPECT_EQ(world().rank(), environment.rank);
  EXPECT_EQ(world().size(), environment.world_size);
  EXPECT_EQ(environment.local_rank, environment.rank);
  EXPECT_EQ(world().device(), ls::Device());
  EXPECT_TRUE(throws<ls::Error>([] { (void)dist::init_process_group(); }, "already"));
  dist::LaunchEnvironment left = environment;
  left.launcher = "torchrun";
  ++left.world_size;
  EXPECT_TRUE(throws<ls::Error>([&] { (void)ls::mpi::detail::make_world(left); },
                                "(torchrun) says rank", "unset RANK and WORLD_SIZE"));
}

TEST(Mpi, ReducesEveryDtypeByEveryOperationInRankOrder) {
  for (const std::size_t count : {0U, 1U, 64U, 1543U, 5001U}) {
    ls::testing::expect_reductions(world(), count);
  }
}

// Blocks until the groups of tests before have ended: MPI is for the program's own calls only then.
void wait_for_ends_of_groups() { world().barrier().wait(); }

MPI_Comm copy_of(MPI_Comm comm) {
  wait_for_ends_of_groups();
  MPI_Comm copy = MPI_COMM_NULL;
  EXPECT_EQ(MPI_Comm_dup(comm, &copy), MPI_SUCCESS);
  return copy;
}

// As among many ranks.
dist::ProcessGroup group_by_mpis_collectives() {
  MPI_Comm comm = copy_of(MPI_COMM_WORLD);
  auto carrier =
      std::make_unique<ls::mpi::detail::MpiCarrier>(world().rank(), world().size(), nullptr, 0);
  carrier->connect(comm, false);
  return dist::ProcessGroup(std::make_shared<dist::detail::GroupState>(
      std::move(carrier), world().impl()->thread(), ls::Device()));
}

TEST(Mpi, ReducesAndMovesByMpisOwnCollectives) {
  const dist::ProcessGroup group = group_by_mpis_collectives();
  for (const std::size_t count : {0U, 1U, 64U, 5001U}) {
    ls::testing::expect_reductions(group, count);
    ls::testing::expect_moves(group, count);
  }
}

TEST(Mpi, MovesEveryDtype) {
  for (const std::size_t count : {0U, 1U, 64U, 5001U}) ls::testing::expect_moves(world(), count);
}

TEST(Mpi, WorksInMemoryOfTheProgramsOwn) {
  const auto rank = static_cast<double>(world().rank());
  const int size = world().size();
  const std::int64_t count = 5001;
  std::vector<double> mine(count, rank + 1);
  const ls::Tensor x = ls::from_blob(mine.data(), {count});
  const auto taken = ls::memory_stats("cpu").allocations;
  dist::all_reduce(x);
  EXPECT_EQ(mine, std::vector<double>(count, size * (size + 1) / 2.0));
  mine.assign(count, rank);
  dist::broadcast(x, last_rank());
  EXPECT_EQ(mine, std::vector<double>(count, last_rank()));
  mine.assign(count, rank);
  std::vector<double> all(static_cast<std::size_t>(size * count));
  dist::all_gather_into_tensor(ls::from_blob(all.data(), {size * count}), x);
  for (int i = 0; i < size; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i * count)], i);
  EXPECT_EQ(ls::memory_stats("cpu").allocations, taken);
}

// More than goes through the buffer at once.
TEST(Mpi, ReducesAndMovesManyPieces) {
  constexpr std::size_t kCount = 1'300'003;
  const dist::ProcessGroup group = world();
  const int size = group.size();
  const auto tensor = ls::testing::brought_tensor<float>(group.rank(), kCount, group.device());
  const auto expect_sum = [&](const ls::Tensor& result) {
    EXPECT_TRUE(ls::testing::same_bits<float>(result, [&](std::size_t i) {
      return ls::testing::combined<float>(dist::ReduceOp::avg, size, i);
    }));
  };
  const ls::Tensor sum = tensor.clone();
  group.all_reduce(sum, dist::ReduceOp::avg).wait();
  expect_sum(sum);
  // And again: the same bits.
  const ls::Tensor at_root = tensor.clone();
  group.reduce(at_root, 0, dist::ReduceOp::avg).wait();
  if (group.rank() == 0) expect_sum(at_root);

  const ls::Tensor copy = tensor.clone();
  group.broadcast(copy, size - 1).wait();
  EXPECT_TRUE(ls::testing::same_bits<float>(
      copy, [&](std::size_t i) { return ls::testing::brought<float>(size - 1, i); }));

  const auto length = static_cast<std::int64_t>(kCount);
  const ls::Tensor all = ls::zeros({size * length});
  group.all_gather_into_tensor(all, tensor).wait();
  EXPECT_TRUE(ls::testing::same_bits<float>(all, [&](std::size_t i) {
    return ls::testing::brought<float>(static_cast<int>(i / kCount), i % kCount);
  }));
  const ls::Tensor part = ls::zeros({length});
  group.reduce_scatter_tensor(part, all).wait();
  EXPECT_TRUE(ls::testing::same_bits<float>(part, [&](std::size_t i) {
    float total = ls::testing::brought<float>(group.rank(), i);
    const float each = total;
    for (int r = 1; r < size; ++r) total += each;
    return total;
  }));
}

TEST(Mpi, GathersInPlace) {
  const dist::ProcessGroup group = world();
  const ls::Tensor all = ls::zeros({group.size() * std::int64_t{7}});
  const ls::Tensor mine = all.narrow(0, group.rank() * 7, 7);
  mine.fill_(group.rank() + 1);
  group.all_gather_into_tensor(all, mine).wait();
  for (int r = 0; r < group.size(); ++r) {
    EXPECT_EQ(all.narrow(0, r * 7, 7).to_vector<float>(),
              std::vector<float>(7, static_cast<float>(r + 1)));
  }
}

TEST(Mpi, KeepsManyOperationsInOrder) {
  ls::testing::expect_many_in_flight(world());
  ls::testing::expect_many_in_flight(world().blocking());
}

TEST(Mpi, SendsAroundARing) { ls::testing::expect_ring(world()); }

TEST(Mpi, HasGroupsWithin) { ls::testing::expect_new_groups(world()); }

TEST(Mpi, TakesACommunicatorOfTheProgram) {
  const dist::ProcessGroup alone = ls::mpi::process_group(MPI_COMM_SELF);
  EXPECT_EQ(alone.size(), 1);
  const ls::Tensor value = ls::full({3}, 2);
  alone.all_reduce(value).wait();
  EXPECT_EQ(value.to_vector<float>(), std::vector<float>(3, 2));

  wait_for_ends_of_groups();
  MPI_Comm first = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, world().rank() == 0 ? 0 : MPI_UNDEFINED, 0, &first);
  EXPECT_EQ(ls::mpi::process_group(first).defined(), world().rank() == 0);
  if (world().rank() == 0) MPI_Comm_free(&first);
}

TEST(MpiOfSeveralRanks, RefusesACommunicatorOfTwoGroups) {
  wait_for_ends_of_groups();
  const bool first = world().rank() == 0;
  MPI_Comm side = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, first ? 0 : 1, 0, &side);
  MPI_Comm both = MPI_COMM_NULL;
  MPI_Intercomm_create(side, 0, MPI_COMM_WORLD, first ? 1 : 0, 0, &both);
  EXPECT_TRUE(
      throws<ls::ValueError>([&] { (void)ls::mpi::process_group(both); }, "MPI_Intercomm_merge"));
  MPI_Comm_free(&both);
  MPI_Comm_free(&side);
}

// One rank has not begun with it when it comes to make the group: the others, which have, wait
// there for what they wait for here.
TEST(MpiOfSeveralRanks, AGroupIsMadeAfterWhatHasBeenIssued) {
  const ls::Tensor value = ls::full({3}, 2);
  dist::Work work;
  const auto issue = [&] { work = world().all_reduce(value); };
  if (world().rank() == last_rank()) {
    world().impl()->thread()->between_operations(issue);
  } else {
    const int before = messages_sent;
    issue();
    while (messages_sent == before) std::this_thread::yield();
  }
  const dist::ProcessGroup group = ls::mpi::process_group();
  work.wait();
  group.all_reduce(value).wait();
  const auto size = static_cast<float>(group.size());
  EXPECT_EQ(value.to_vector<float>(), std::vector<float>(3, 2 * size * size));
}

TEST(Mpi, AMisspeltLevelOfDebuggingIsAnErrorOnEveryRank) {
  const ls::testing::EnvironmentVariable debug("LOCKSTEP_DISTRIBUTED_DEBUG", "detail");
  EXPECT_TRUE(throws<ls::ValueError>([] { (void)ls::mpi::process_group(); },
                                     "LOCKSTEP_DISTRIBUTED_DEBUG is \"detail\"",
                                     "expected DETAIL, INFO or OFF"));
}

TEST(Mpi, ReducesWhenWatched) { ls::testing::expect_reductions(watched_world(), 3); }

TEST(MpiOfSeveralRanks, CallsThatDoNotMatchAreAnErrorWhenWatched) {
  const dist::ProcessGroup group = watched_world();
  const int last = group.size() - 1;
  const ls::Tensor value = ls::full({group.rank() == last ? 5 : 4}, 1);
  EXPECT_TRUE(throws<ls::ValueError>(
      [&] { group.all_reduce(value).wait(); }, "rank 0 called all_reduce(sum) of 4 x f32",
      ls::detail::str("rank ", last, " called all_reduce(sum) of 5 x f32")));
  EXPECT_TRUE(throws<ls::ValueError>(
      [&] {
        if (group.rank() == 0) {
          group.barrier().wait();
        } else {
          group.broadcast(value, 1).wait();
        }
      },
      "rank 0 called barrier", "broadcast"));
  const ls::Tensor one = ls::full({2}, 1);
  group.all_reduce(one).wait();
  EXPECT_EQ(one.to_vector<float>(), std::vector<float>(2, static_cast<float>(group.size())));
}

// Where all ranks send each other everything. The group is of no further use then, others are.
TEST(MpiOfSeveralRanks, LengthsThatDoNotMatchAreAnErrorOnAllRanks) {
  const int last = world().size() - 1;
  const dist::ProcessGroup group = ls::mpi::process_group();
  const ls::Tensor value = ls::full({group.rank() == last ? 5 : 4}, 1);
  EXPECT_TRUE(throws<ls::ValueError>(
      [&] { group.all_reduce(value).wait(); }, "collectives do not match",
      group.rank() == last ? "fewer bytes than this rank expected"
                           : ls::detail::str("rank ", last, " sent more bytes")));
  EXPECT_TRUE(throws<ls::ValueError>([&] { group.barrier().wait(); }, "collectives do not match"));
  world().barrier().wait();
}

TEST(MpiOfSeveralRanks, PiecesOfALongCallAreNotTakenForShorterCalls) {
  if (const dist::ProcessGroup pair = world().new_group({0, 1})) {
    const ls::Tensor value = ls::zeros({(pair.rank() == 0 ? 2 : 1) << 20});  // 8 and 4 MiB
    EXPECT_TRUE(throws<ls::ValueError>([&] { pair.all_reduce(value).wait(); }, "do not match"));
  }
  world().barrier().wait();
}

TEST(MpiOfSeveralRanks, MessagesOfAnotherSizeAreAnErrorWhereTheyArrive) {
  const dist::ProcessGroup group = world();
  if (group.rank() == 0) group.send(ls::full({4}, 1), 1).wait();
  if (group.rank() == 1) {
    const ls::Tensor room = ls::zeros({5});
    EXPECT_TRUE(throws<ls::ValueError>([&] { group.recv(room, 0).wait(); }, "rank 0 sent 16 bytes",
                                       "5 x f32"));
  }
  group.barrier().wait();
  if (group.rank() == 0) group.send(ls::full({6}, 1), 1).wait();
  if (group.rank() == 1) {
    const ls::Tensor room = ls::zeros({5});
    EXPECT_TRUE(throws<ls::ValueError>([&] { group.recv(room, 0).wait(); }, "rank 0 sent 24 bytes",
                                       "5 x f32"));
  }
  group.barrier().wait();
}

TEST(MpiOfSeveralRanks, MessagesOfAnotherDtypeAreTakenAsBytes) {
  if (world().rank() == 0) world().send(ls::full({2, 1}, 1), 1).wait();
  if (world().rank() == 1) {
    const ls::Tensor bits = ls::zeros({2}, {.dtype = ls::Dtype::i32});
    world().recv(bits, 0).wait();
    EXPECT_EQ(bits.to_vector<std::int32_t>(), std::vector<std::int32_t>(2, 0x3F800000));
  }
}

// Where rank 0 expects less than rank 1 sends: an MPI may write behind the memory that it is given.
// `exchange` is called with a group of these two and a tensor, on rank 0 a part of a longer one.
template <class Exchange>
void expect_nothing_behind(const char* what, const Exchange& exchange) {
  SCOPED_TRACE(what);
  constexpr std::int64_t kCount = 100'000;
  if (const dist::ProcessGroup pair = world().new_group({0, 1})) {
    const bool is_short = pair.rank() == 0;
    const ls::Tensor whole = ls::full({2 * kCount}, is_short ? 1 : 7);
    const ls::Tensor tensor = is_short ? whole.narrow(0, 0, kCount) : whole;
    if (is_short) {
      EXPECT_TRUE(throws<ls::ValueError>([&] { exchange(pair, tensor); }, "do not match"));
      EXPECT_EQ(whole.narrow(0, kCount, kCount).to_vector<float>(), std::vector<float>(kCount, 1));
    } else {
      exchange(pair, tensor);
    }
  }
  world().barrier().wait();
}

TEST(MpiOfSeveralRanks, NothingIsWrittenBehindATensorThatIsTooShort) {
  const auto sends = [](const dist::ProcessGroup& group, const ls::Tensor& tensor) {
    if (group.rank() == 0) group.recv(tensor, 1).wait();
    if (group.rank() == 1) group.send(tensor, 0).wait();
  };
  expect_nothing_behind("recv", sends);
  expect_nothing_behind("broadcast", [](const dist::ProcessGroup& group, const ls::Tensor& tensor) {
    group.broadcast(tensor, 1).wait();
  });
  expect_nothing_behind("gather", [](const dist::ProcessGroup& group, const ls::Tensor& tensor) {
    std::vector<ls::Tensor> all;
    if (group.rank() == 0) all = {tensor.clone(), tensor};
    group.gather(tensor.clone(), all).wait();
  });
}

// Among many ranks they are moved by MPI, so calls are compared before.
TEST(MpiOfSeveralRanks, LengthsThatDoNotMatchAreAnErrorAmongManyRanks) {
  const int size = world().size();
  const dist::ProcessGroup group = group_by_mpis_collectives();
  const ls::Tensor value = ls::full({group.rank() == 0 ? 4 : 5}, 1);
  EXPECT_TRUE(throws<ls::ValueError>([&] { group.broadcast(value, 1).wait(); },
                                     "rank 0 called broadcast of 4 x f32",
                                     "rank 1 called broadcast of 5 x f32"));
  const ls::Tensor one = ls::full({2}, 1);
  group.all_reduce(one).wait();
  EXPECT_EQ(one.to_vector<float>(), std::vector<float>(2, static_cast<float>(size)));
}

TEST(MpiOfSeveralRanks, AGroupOfOtherMembersIsAnErrorOnAllRanks) {
  const dist::ProcessGroup group = world();
  const bool first = group.rank() == 0;
  EXPECT_TRUE(throws<ls::ValueError>(
      [&] {
        (void)group.new_group(first ? std::vector{0, 1} : std::vector{1, 0});
      },
      "rank 0 called new_group of 2 ranks", "rank 1 called it with other ranks"));
  EXPECT_TRUE(throws<ls::ValueError>(
      [&] {
        (void)group.new_group(first ? std::vector{0} : std::vector{0, 1});
      },
      "rank 0 called new_group of 1 ranks", "rank 1 called new_group of 2 ranks"));
  group.barrier().wait();
}

// What MPI gives there is data of the other collective. Who finds that tells the rank, which may
// have taken calls for numbers.
TEST(MpiOfSeveralRanks, ACollectiveThatIsNotComparedIsNotTakenForACall) {
  for (const double number : {0.1, 0.0}) {  // bytes that are none of a call's, and some that are
    const dist::ProcessGroup group = ls::mpi::process_group();
    if (group.rank() == 0) {
      const ls::Tensor value = ls::full({3}, number, {.dtype = ls::Dtype::f64});  // as a call
      try {
        group.all_reduce(value).wait();
      } catch (const ls::Error&) {  // or numbers that are none
      }
    } else {
      EXPECT_TRUE(throws<ls::ValueError>([&] { (void)group.new_group({0, 1}); }, "do not match"));
    }
    EXPECT_TRUE(throws<ls::ValueError>([&] { group.barrier().wait(); }, "do not match"));
  }
  world().barrier().wait();
}

// A rank that waits for all others may be waited for: MPI takes so large a message only when both
// ranks are at it.
TEST(MpiOfSeveralRanks, AMessageIsTakenWhileItsRankIsInACollective) {
  const dist::ProcessGroup group = world();
  const ls::Tensor value = ls::full({2 << 20}, group.rank());
  if (group.rank() == 0) group.send(value, 1).wait();
  const dist::Work received = group.rank() == 1 ? group.recv(value, 0) : dist::Work();
  group.barrier().wait();
  received.wait();
  EXPECT_EQ(value.narrow(0, (2 << 20) - 1, 1).item(), group.rank() == 1 ? 0 : group.rank());
}

// Whoever waits for a message keeps the memory for it then.
TEST(Mpi, AnErrorOfMpiWhileWaitingIsAFailure) {
  MPI_Comm comm = copy_of(MPI_COMM_SELF);
  ls::mpi::detail::FailureNotice notice(comm, 0, 1);
  ls::mpi::detail::Requests requests(nullptr, &notice);
  int number = 0;
  requests.receive(&number, sizeof(number), 0);
  ls::mpi::detail::Messages messages(nullptr, &notice);
  std::exception_ptr error;
  messages.start({.count = sizeof(number)}, &number,
                 [&](std::exception_ptr thrown) { error = std::move(thrown); });
  any_source_fails = true;
  EXPECT_TRUE(throws<ls::Error>([&] { requests.wait(); }, "MPI_Improbe failed with code"));
  while (messages.progress()) {
  }
  any_source_fails = false;
  EXPECT_TRUE(throws<ls::Error>([&] { std::rethrow_exception(error); }, "MPI_Improbe failed"));
  EXPECT_TRUE(throws<ls::Error>([&] { messages.check({}); }, "MPI_Improbe failed"));
  EXPECT_TRUE(messages.failure());
  EXPECT_TRUE(requests.failed());
  EXPECT_TRUE(throws<ls::Error>([&] { requests.check_usable(); }, "MPI_Improbe failed with code"));
  MPI_Comm_free(&comm);
}

// A rank that has told of its failure tells nothing a second time.
TEST(MpiOfSeveralRanks, WhatAnotherRankHasToldIsKnownToTheNextWait) {
  using ls::mpi::detail::FailureNotice;
  using ls::mpi::detail::Requests;
  MPI_Comm comm = copy_of(MPI_COMM_WORLD);
  const std::string text = "collectives do not match";
  std::byte data{};
  if (world().rank() == 1) {
    // Has ended once rank 0 has taken it, within its first wait.
    const std::string told = FailureNotice::kDiffer + text;
    MPI_Ssend(told.data(), static_cast<int>(told.size()), MPI_CHAR, 0, FailureNotice::kTag, comm);
    MPI_Send(&data, 1, MPI_BYTE, 0, Requests::kTag, comm);
  }
  if (world().rank() == 0) {
    FailureNotice notice(comm, 0, world().size());
    Requests requests(nullptr, &notice);
    const auto wait_for_one = [&] {
      requests.receive(&data, 1, 1);
      requests.wait();
    };
    try {
      wait_for_one();
    } catch (const ls::ValueError&) {
      // On a machine so busy that what follows the notice comes 100 ms later.
    }
    if (!requests.failed()) {
      EXPECT_TRUE(throws<ls::ValueError>(wait_for_one, text));
    }
    EXPECT_TRUE(requests.failed());
  }
  MPI_Barrier(comm);
  MPI_Comm_free(&comm);
}

TEST(Mpi, WhoIsToldOfAMessageMayStartOthers) {
  using ls::mpi::detail::Messages;
  MPI_Comm comm = copy_of(MPI_COMM_SELF);
  ls::mpi::detail::FailureNotice notice(comm, 0, 1);
  Messages messages(nullptr, &notice);
  constexpr int kMany = 20;  // more than there is room for beside the first
  std::byte sent{7};
  std::vector<std::byte> received(kMany);
  int taken = 0;
  int failed = 0;
  const auto count = [&](const std::exception_ptr& error) { ++(error ? failed : taken); };
  const auto start_others = [&](const std::exception_ptr& error) {
    count(error);
    for (int i = 0; i < kMany; ++i) {
      messages.start({.count = 1, .sends = true}, &sent, count);
      messages.start({.count = 1}, &received[static_cast<std::size_t>(i)], count);
    }
  };
  messages.start({.count = 1, .sends = true}, &sent, start_others);
  messages.start({.count = 1}, &received[0], count);
  while (messages.progress()) {
  }
  EXPECT_EQ(taken, 2 + 2 * kMany);
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(received, std::vector<std::byte>(kMany, sent));

  // What is started while the messages end does not end with them.
  messages.start({.count = 1}, &received[0], start_others);
  messages.start({.count = 1}, &received[1], count);
  messages.fail_in_flight();
  EXPECT_EQ(failed, 2);
  messages.fail_in_flight();
  EXPECT_EQ(failed, 2 + 2 * kMany);
  MPI_Comm_free(&comm);
}

TEST(Mpi, ATagThatIsTooLargeIsRefusedWithTheLimitAndTheNextIsTaken) {
  const int* greatest = nullptr;
  int known = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &greatest, &known);
  ASSERT_TRUE(known);
  const int end = *greatest - ls::mpi::detail::Requests::kTag;
  const dist::ProcessGroup group = world();
  const ls::Tensor received = ls::zeros({2});
  EXPECT_TRUE(
      throws<ls::ValueError>([&] { group.recv(received, group.rank(), end).wait(); },
                             ls::detail::str("expected a tag of less than ", end, ", got ", end)));
  (void)group.blocking().send(ls::ones({2}), group.rank(), end - 1);
  (void)group.blocking().recv(received, group.rank(), end - 1);
  EXPECT_EQ(received.to_vector<float>(), std::vector<float>(2, 1));
}

// What one rank brings to an operation of a group of all ranks.
struct Brought {
  explicit Brought(int size) : members(static_cast<std::size_t>(size)), reversed(members) {
    std::iota(members.begin(), members.end(), 0);
    std::iota(reversed.rbegin(), reversed.rend(), 0);
  }

  const ls::Tensor matrix = ls::full({40, 60}, 1);
  const ls::Tensor columns = matrix.t().narrow(0, 1, 50);
  std::vector<int> members;
  std::vector<int> reversed;
  const std::vector<int> first{0};
};

// Returns the group that goes on, itself or one made from it.
struct FaultyOperation {
  const char* name;
  dist::ProcessGroup (*run)(const dist::ProcessGroup& group, const Brought& brought);
};

// Of a group of all ranks, of which there is an even number.
bool is_reversed(const dist::ProcessGroup& group) { return group.rank() != world().rank(); }

// Whose rank `from` sends to another one.
dist::ProcessGroup exchange(const dist::ProcessGroup& group, const ls::Tensor& tensor, int from,
                            int to) {
  if (group.rank() == from) group.send(tensor, to).wait();
  if (group.rank() == to) group.recv(tensor, from).wait();
  return group;
}

const std::vector<FaultyOperation>& faulty_operations() {
  static const std::vector<FaultyOperation> all = {
      {"all_reduce, blocking",
       [](const dist::ProcessGroup& group, const Brought& brought) {
         (void)group.blocking().all_reduce(brought.columns);
         return group;
       }},
      {"all_reduce",
       [](const dist::ProcessGroup& group, const Brought& brought) {
         group.all_reduce(brought.columns).wait();
         return group;
       }},
      {"new_group", [](const dist::ProcessGroup& group,
                       const Brought& brought) { return group.new_group(brought.members); }},
      {"new_group, reversed",
       [](const dist::ProcessGroup& group, const Brought& brought) {
         return group.new_group(brought.reversed);
       }},
      {"new_group of one",
       [](const dist::ProcessGroup& group, const Brought& brought) {
         (void)group.new_group(brought.first);
         return group;
       }},
      {"send",
       [](const dist::ProcessGroup& group, const Brought& brought) {
         return exchange(group, brought.matrix, group.size() - 1, 0);
       }},
      {"recv",
       [](const dist::ProcessGroup& group, const Brought& brought) {
         return exchange(group, brought.matrix, 0, group.size() - 1);
       }},
  };
  return all;
}

// Calls `body` in the thread that issues, or in the one that communicates.
template <class Body>
void run_in(const dist::ProcessGroup& group, bool communicating, const Body& body) {
  if (!communicating) return body();
  group.impl()->thread()->issue(ls::detail::Task([&]() noexcept { body(); }));
  group.impl()->thread()->drain();
}

// Allocation n of the last rank fails in the operation; then all go on as if nothing had been.
// Returns whether there was an allocation n.
bool survive_fault(const FaultyOperation& operation, bool communicating, std::uint64_t n,
                   bool lasting) {
  const dist::ProcessGroup group = ls::mpi::process_group();
  const bool faulty = group.rank() == last_rank();
  const Brought brought(group.size());
  const ls::Tensor next = ls::full({3}, 1);
  dist::ProcessGroup result = group;
  bool met = false;
  if (faulty) {
    run_in(group, communicating, [&] { ls::testing::fail_allocation(n, lasting); });
  }
  const std::string first = error_of([&] { result = operation.run(group, brought); });
  if (faulty) {
    run_in(group, communicating, [&] { met = ls::testing::end_allocation_faults(); });
  }
  const std::string second = error_of([&] { (void)result.blocking().all_reduce(next); });
  const std::string third = error_of([&] { (void)group.blocking().all_reduce(next); });
  const Told told = tell_all(met, !first.empty());
  if (!told.failed) {
    EXPECT_EQ(first + second + third, "");
  } else if (faulty) {
    EXPECT_TRUE(met);
    EXPECT_EQ(first, "std::bad_alloc");
    EXPECT_EQ(second, "std::bad_alloc");
    EXPECT_EQ(third, "std::bad_alloc");
  } else {
    expect_last_rank_in(second, third, is_reversed(result));
  }
  return told.met;
}

TEST(MpiOfSeveralRanks, ARankWithoutMemoryEndsTheGroup) {
  const ShortLastChance soon;
  std::uint64_t places = 0;
  for (const FaultyOperation& operation : faulty_operations()) {
    for (const bool communicating : {false, true}) {
      for (const bool lasting : {false, true}) {
        SCOPED_TRACE(ls::detail::str(operation.name, communicating ? ", communicating" : "",
                                     lasting ? ", lasting" : ""));
        std::uint64_t n = 0;
        while (survive_fault(operation, communicating, n, lasting)) ++n;
        places += n;
      }
    }
  }
  if (world().rank() == world().size() - 1) std::cout << places << " places\n";
  EXPECT_GT(places, 50U);
}

// The same where call n of MPI's on the last rank fails.
bool survive_failing_call(const FaultyOperation& operation, int n) {
  const dist::ProcessGroup group = ls::mpi::process_group();
  const bool faulty = group.rank() == last_rank();
  const Brought brought(group.size());
  const ls::Tensor next = ls::full({3}, 1);
  dist::ProcessGroup result = group;
  if (faulty) calls_before_failure = n;
  const std::string first = error_text([&] { result = operation.run(group, brought); });
  const bool met = calls_before_failure.exchange(-1) < 0 && faulty;
  const std::string second = error_text([&] { (void)result.blocking().all_reduce(next); });
  const std::string third = error_text([&] { (void)group.blocking().all_reduce(next); });
  const Told told = tell_all(met, !first.empty());
  if (!told.met) {
    EXPECT_EQ(first + second + third, "");
  } else if (faulty) {
    EXPECT_NE(first.find(" failed with code"), std::string::npos) << first;
    EXPECT_EQ(second, first);
    EXPECT_EQ(third, first);
  } else {
    expect_last_rank_in(second, third, is_reversed(result));
  }
  return told.met;
}

TEST(MpiOfSeveralRanks, ARankWhoseCallOfMpiFailsEndsTheGroup) {
  const ShortLastChance soon;
  int places = 0;
  for (const FaultyOperation& operation : faulty_operations()) {
    SCOPED_TRACE(operation.name);
    int n = 0;
    while (survive_failing_call(operation, n)) ++n;
    places += n;
  }
  if (world().rank() == last_rank()) std::cout << places << " calls\n";
  EXPECT_GT(places, 10);
}

// The same for making a group of all processes. Its first operation is as far as it gets.
bool survive_fault_in_making(std::uint64_t n, bool lasting) {
  const int last = last_rank();
  const bool faulty = world().rank() == last;
  const ls::Tensor value = ls::full({3}, 1);
  dist::ProcessGroup group;
  if (faulty) ls::testing::fail_allocation(n, lasting);
  const std::string first = error_of([&] { group = ls::mpi::process_group(); });
  const bool met = faulty && ls::testing::end_allocation_faults();
  const std::string error =
      first.empty() ? error_of([&] { (void)group.blocking().all_reduce(value); }) : first;
  const Told told = tell_all(met, !first.empty());
  if (!told.failed) {
    EXPECT_EQ(error, "");
  } else if (faulty) {
    EXPECT_EQ(first, "std::bad_alloc");
  } else {
    EXPECT_NE(error.find(ls::detail::str("rank ", last, " has ")), std::string::npos) << error;
  }
  return told.met;
}

TEST(MpiOfSeveralRanks, ARankWithoutMemoryForAGroupIsAnErrorOfAll) {
  const ShortLastChance soon;
  std::uint64_t places = 0;
  for (const bool lasting : {false, true}) {
    SCOPED_TRACE(lasting ? "lasting" : "once");
    std::uint64_t n = 0;
    while (survive_fault_in_making(n, lasting)) ++n;
    places += n;
  }
  if (world().rank() == last_rank()) std::cout << places << " places\n";
  EXPECT_GT(places, 10U);
  ls::testing::expect_reductions(ls::mpi::process_group(), 3);
}

// What the first group of all processes does before. Rank 0 has what the others join.
TEST(MpiOfSeveralRanks, ARankWithoutMemoryForTheWatchdogIsAnErrorOfAll) {
  MPI_Comm comm = copy_of(MPI_COMM_WORLD);
  // Returns whether there was an allocation n.
  const auto survive = [comm](int rank, std::uint64_t n, bool lasting) {
    const bool faulty = world().rank() == rank;
    std::string error;
    if (faulty) ls::testing::fail_allocation(n, lasting);
    try {
      (void)ls::mpi::detail::watch_world(comm);
    } catch (const std::bad_alloc&) {
      error = "std::bad_alloc";
    } catch (const ls::Error& thrown) {
      error = thrown.what();
    }
    int met = faulty && ls::testing::end_allocation_faults() ? 1 : 0;
    int failed = error.empty() ? 0 : 1;
    MPI_Allreduce(MPI_IN_PLACE, &met, 1, MPI_INT, MPI_SUM, comm);
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_SUM, comm);
    EXPECT_TRUE(failed == 0 || failed == world().size()) << error;
    if (failed != 0 && faulty) {
      EXPECT_EQ(error, "std::bad_alloc");
    } else if (failed != 0) {
      EXPECT_NE(error.find(ls::detail::str("rank ", rank, ' ')), std::string::npos) << error;
    }
    return met != 0;
  };
  std::uint64_t places = 0;
  for (const int rank : {0, last_rank()}) {
    for (const bool lasting : {false, true}) {
      std::uint64_t n = 0;
      while (survive(rank, n, lasting)) ++n;
      places += n;
    }
  }
  if (world().rank() == last_rank()) std::cout << places << " places\n";
  EXPECT_GT(places, 20U);
  MPI_Comm_free(&comm);
}

// Issues an operation of which an allocation of this rank fails, so that it leaves the group.
template <class Operation>
void leave_by(const Operation& operation) {
  ls::testing::fail_allocation(0);
  EXPECT_THROW(operation(), std::bad_alloc);
  EXPECT_TRUE(ls::testing::end_allocation_faults());
}

// What a rank has sent before it left still arrives, and the others' messages do.
TEST(MpiOfSeveralRanks, AMessageWithARankThatHasLeftEndsWithItsError) {
  const dist::ProcessGroup group = ls::mpi::process_group();
  const int last = group.size() - 1;
  const ls::Tensor small = ls::full({2}, group.rank());
  const ls::Tensor large = ls::zeros({1'000'000});  // more than an MPI takes before it is received
  const std::string peer = std::to_string(last);
  const std::string cause = ": rank " + peer + " has thrown std::bad_alloc";
  if (group.rank() == last) {
    for (int r = 0; r < last; ++r) group.send(small, r, 1).wait();
    leave_by([&] { (void)group.send(small, 0); });
    EXPECT_THROW(group.recv(small, 0).wait(), std::bad_alloc);
  } else {
    const dist::Work sent = group.send(large, last);
    EXPECT_TRUE(
        throws<dist::RankGone>([&] { group.recv(small, last).wait(); },
                               "recv of 2 x f32 from rank " + peer + " with tag 0" + cause));
    EXPECT_TRUE(throws<dist::RankGone>(
        [&] { sent.wait(); }, "send of 1000000 x f32 to rank " + peer + " with tag 0" + cause));
    EXPECT_TRUE(throws<dist::RankGone>([&] { group.send(large, last).wait(); }, cause));
    group.recv(small, last, 1).wait();
    EXPECT_EQ(small.to_vector<float>(), std::vector<float>(2, static_cast<float>(last)));
    EXPECT_TRUE(throws<dist::RankGone>([&] { group.recv(small, last, 1).wait(); }, cause));
  }
  if (last > 1 && group.rank() == 0) group.send(ls::full({1}, 5), 1).wait();
  if (last > 1 && group.rank() == 1) {
    const ls::Tensor five = ls::zeros({1});
    group.recv(five, 0).wait();
    EXPECT_EQ(five.item<int>(), 5);
  }
  world().barrier().wait();
}

// So does a message with a rank that leaves after another has left, or after calls did not match.
TEST(MpiOfSeveralRanks, EveryRankThatLeavesIsNamed) {
  const int size = world().size();
  const int last = size - 1;
  for (const bool differ : {false, true}) {
    const dist::ProcessGroup group = ls::mpi::process_group();
    const ls::Tensor tensor = ls::zeros({group.rank() == last ? 5 : 4});
    if (differ) {
      EXPECT_THROW(group.all_reduce(tensor).wait(), ls::ValueError);
    } else if (size > 2) {
      if (group.rank() == last - 1) leave_by([&] { (void)group.barrier(); });
      EXPECT_NE(error_of([&] { group.barrier().wait(); }), "");
    }
    if (group.rank() == last) leave_by([&] { (void)group.send(tensor, 0); });
    if (group.rank() == 0) {
      EXPECT_TRUE(throws<dist::RankGone>([&] { group.recv(tensor, last).wait(); },
                                         ls::detail::str("rank ", last, " has thrown")));
    }
    world().barrier().wait();
  }
}

// What it has issued before may be for a rank that waits for what then fails.
TEST(MpiOfSeveralRanks, ARankThatFailsDoesNotWaitFirstForThoseThatWaitForIt) {
  const dist::ProcessGroup group = ls::mpi::process_group();
  const ls::Tensor tensor = ls::zeros({4});
  if (group.rank() == 0) {
    const dist::Work sum = group.all_reduce(tensor);
    leave_by([&] { (void)group.send(tensor, 1); });
    EXPECT_EQ(error_of([&] { sum.wait(); }), "std::bad_alloc");
  } else {
    const std::string cause = "rank 0 has thrown std::bad_alloc";
    if (group.rank() == 1) {
      EXPECT_TRUE(throws<dist::RankGone>([&] { group.recv(tensor, 0).wait(); }, cause));
    }
    // Rank 0 had done its part of that.
    (void)error_of([&] { group.all_reduce(tensor).wait(); });
    EXPECT_TRUE(throws<dist::RankGone>([&] { group.barrier().wait(); }, cause));
  }
  world().barrier().wait();
}

// What was in flight may be in use for ever, what comes after it is not.
TEST(MpiOfSeveralRanks, NothingThatIsIssuedAfterTheEndOfAGroupIsKept) {
  const dist::ProcessGroup group = ls::mpi::process_group();
  if (group.rank() == 0) leave_by([&] { (void)group.barrier(); });
  const ls::Tensor met = ls::zeros({3});
  EXPECT_NE(error_of([&] { group.all_reduce(met).wait(); }), "");
  long kept = 0;
  for (int i = 0; i < 5; ++i) {
    const int peer = group.rank() == 0 ? 1 : 0;
    const ls::Tensor later = ls::zeros({3});
    EXPECT_NE(error_of([&] { group.all_reduce(later).wait(); }), "");
    EXPECT_NE(error_of([&] { (void)group.blocking().broadcast(later); }), "");
    EXPECT_NE(error_of([&] { group.recv(later, peer).wait(); }), "");
    group.impl()->thread()->drain();
    kept += later.impl().use_count() - 1;
  }
  EXPECT_EQ(kept, 0);
  EXPECT_EQ(met.impl().use_count() > 1, group.rank() != 0);
  world().barrier().wait();
}

// Nor is what MPI has not been given.
TEST(Mpi, ACollectiveThatFailsBeforeItStartsUsesNoMemory) {
  MPI_Comm comm = copy_of(MPI_COMM_SELF);
  ls::mpi::detail::MpiCarrier carrier(0, 1, nullptr);
  carrier.connect(comm, false);
  const std::vector<float> value(3, 1);
  std::vector<float> sum(3);
  const void* const input = value.data();
  void* const output = sum.data();
  const dist::detail::Call call{.collective = dist::detail::Collective::all_reduce,
                                .dtype = ls::Dtype::f32,
                                .count = value.size()};
  ls::testing::fail_allocation(0);  // the carrier's buffer
  EXPECT_THROW(carrier.run(call, {&input, 1}, {&output, 1}, nullptr, {}), std::bad_alloc);
  EXPECT_TRUE(ls::testing::end_allocation_faults());
  EXPECT_FALSE(carrier.buffers_in_flight());
  MPI_Comm_free(&comm);
}

// MPI may give a later communicator the number of one that has been freed.
TEST(MpiOfSeveralRanks, WhatNobodyHasTakenDoesNotComeToALaterGroup) {
  const int rank = world().rank();
  dist::ProcessGroup group;
  const auto send = [&](double value) {
    if (rank == 0) group.send(ls::full({1}, value), 1).wait();
  };
  const auto end = [&] {
    group = {};
    world().impl()->thread()->drain();
  };
  for (const bool awaited : {false, true}) {
    SCOPED_TRACE(awaited);
    group = ls::mpi::process_group();
    if (!awaited) send(1);
    world().barrier().wait();
    if (awaited && rank == 1) (void)group.recv(ls::zeros({1}), 0);
    if (rank != 0) end();
    world().barrier().wait();
    if (awaited) send(1);
    if (rank == 0) end();
    world().barrier().wait();
    group = ls::mpi::process_group();
    send(2);
    if (rank == 1) {
      const ls::Tensor got = ls::zeros({1});
      group.recv(got, 0).wait();
      EXPECT_EQ(got.item(), 2);
    }
  }
}

TEST(MpiOfSeveralRanks, AReceiveThatNothingComesForEndsWithItsGroup) {
  dist::Work work;
  {
    const dist::ProcessGroup group = ls::mpi::process_group();
    work = group.recv(ls::zeros({2}), (group.rank() + 1) % group.size());
    group.barrier().wait();
  }
  EXPECT_TRUE(
      throws<ls::Error>([&] { work.wait(); }, "with tag 0: the process group was destroyed"));
}

// More than an MPI takes before it is received.
TEST(MpiOfSeveralRanks, ASendThatNobodyTakesEndsWithItsGroup) {
  dist::Work work;
  {
    const dist::ProcessGroup group = ls::mpi::process_group();
    if (group.rank() == 0) work = group.send(ls::zeros({1'000'000}), 1);
    group.barrier().wait();
  }
  if (world().rank() == 0) {
    EXPECT_TRUE(throws<ls::Error>(
        [&] { work.wait(); },
        "send of 1000000 x f32 to rank 1 with tag 0: the process group was destroyed"));
  }
  world().barrier().wait();
}

}  // namespace mpi_test
