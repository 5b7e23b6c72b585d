// SPDX-License-Identifier: Apache-2.0
#include "cudasim/cudasim.hpp"
#include "cudasim/program.hpp"

#include <gtest/gtest.h>

#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// The simulated NCCL: a correct program is clean and gets the right values under every schedule,
// and whatever hangs the real library, or gives wrong values now and then, is flagged under each.
namespace cudasim::test {
namespace nccl_test {

constexpr int kDevices = 3;
constexpr std::size_t kCount = 64;

void nccl_ok(ncclResult_t result) {
  ASSERT_EQ(result, ncclSuccess) << ncclGetErrorString(result) << ": " << ncclGetLastError(nullptr);
}

// A communicator of three devices, and for each rank a stream, the memory that it sends, and the
// memory for what it gets, filled by a stream of their own.
class Ranks {
 public:
  Ranks() {
    comms_.resize(kDevices);
    nccl_ok(ncclCommInitAll(comms_.data(), kDevices, nullptr));
    for (int device = 0; device < kDevices; ++device) {
      streams_.push_back(std::make_unique<Stream>(device));
      producers_.push_back(std::make_unique<Stream>(device));
      sent_.push_back(std::make_unique<Floats>(kCount, *producers_.back()));
      got_.push_back(std::make_unique<Floats>(kCount, *streams_.back()));
      sent_.back()->record_stream(*streams_.back());
      producers_.back()->write("produce", sent_.back()->data(), kCount,
                               static_cast<float>(device + 1));
    }
  }

  ncclComm_t comm(int rank) const { return comms_[static_cast<std::size_t>(rank)]; }
  const Stream& stream(int rank) const { return *streams_[static_cast<std::size_t>(rank)]; }
  float* sent(int rank) const { return sent_[static_cast<std::size_t>(rank)]->data(); }
  float* got(int rank) const { return got_[static_cast<std::size_t>(rank)]->data(); }

  void wait_for_producer(int rank) const {
    stream(rank).wait(*producers_[static_cast<std::size_t>(rank)]);
  }
  void wait_for_producers() const {
    for (int rank = 0; rank < kDevices; ++rank) wait_for_producer(rank);
  }

  // For tests of later collectives: the ranks meet on the host in the first one.
  void connect() const {
    nccl_ok(ncclGroupStart());
    for (int rank = 0; rank < kDevices; ++rank) {
      nccl_ok(ncclAllReduce(got(rank), got(rank), kCount, ncclFloat32, ncclSum, comm(rank),
                            stream(rank).get()));
    }
    nccl_ok(ncclGroupEnd());
    for (const auto& stream : streams_) stream->synchronize();
  }

  ncclResult_t broadcast(int rank, int root = 0, std::size_t count = kCount,
                         ncclDataType_t type = ncclFloat32) const {
    return ncclBroadcast(sent(rank), got(rank), count, type, root, comm(rank), stream(rank).get());
  }
  ncclResult_t reduce(int rank, int root = 0) const {
    return ncclReduce(sent(rank), got(rank), kCount, ncclFloat32, ncclSum, root, comm(rank),
                      stream(rank).get());
  }

  std::vector<float> values(int rank, const float* from) const {
    PageLocked host(kCount);
    const OnDevice on(rank);
    ok(cudaMemcpyAsync(host.data(), from, host.bytes(), cudaMemcpyDefault, stream(rank).get()));
    stream(rank).synchronize();
    return std::vector<float>(host.data(), host.data() + kCount);
  }

 private:
  std::vector<ncclComm_t> comms_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<Stream>> producers_;
  std::vector<std::unique_ptr<Floats>> sent_;
  std::vector<std::unique_ptr<Floats>> got_;
};

// Runs a program under every schedule: clean, if `parts` are empty; or else with errors of the kind
// that the first part names, one of which has all parts.
void expect(std::initializer_list<std::string> parts, const std::function<void(Ranks&)>& program) {
  for (Config config : schedules(kDevices, 2 * kDevices, 10)) {
    config.fibers = parts.size() == 0;
    reset(config);
    {
      Ranks ranks;
      program(ranks);
    }
    bool found = parts.size() == 0;
    for (const std::string& error : take_errors()) {
      EXPECT_TRUE(parts.size() > 0 && contains(error, {*parts.begin()}))
          << name_of(config) << ": " << error;
      found = found || contains(error, parts);
    }
    EXPECT_TRUE(found) << name_of(config);
    if (parts.size() == 0) {
      EXPECT_EQ(leaks(), std::vector<std::string>()) << name_of(config);
    }
  }
}

void in_group(const std::function<void()>& calls) {
  nccl_ok(ncclGroupStart());
  calls();
  nccl_ok(ncclGroupEnd());
}

const std::vector<float> ones(kCount, 1);
const std::vector<float> twos(kCount, 2);
const std::vector<float> sixes(kCount, 6);

TEST(Nccl, ABroadcastGivesEveryRankTheRootsValues) {
  expect({}, [](Ranks& ranks) {
    ranks.wait_for_producer(1);
    in_group([&] {
      for (int rank = 0; rank < kDevices; ++rank) nccl_ok(ranks.broadcast(rank, 1));
    });
    for (int rank = 0; rank < kDevices; ++rank)
      EXPECT_EQ(ranks.values(rank, ranks.got(rank)), twos);
  });
}

TEST(Nccl, AReductionGivesTheRootTheSum) {
  expect({}, [](Ranks& ranks) {
    ranks.wait_for_producers();
    in_group([&] {
      for (int rank = 0; rank < kDevices; ++rank) nccl_ok(ranks.reduce(rank, 2));
    });
    EXPECT_EQ(ranks.values(2, ranks.got(2)), sixes);
  });
}

TEST(Nccl, SeveralCallsOfAGroupAreMatchedInOrder) {
  expect({}, [](Ranks& ranks) {
    ranks.wait_for_producers();
    in_group([&] {
      for (int rank = 0; rank < kDevices; ++rank) {
        nccl_ok(ranks.broadcast(rank, 0));
        nccl_ok(ranks.reduce(rank, 1));
      }
    });
    EXPECT_EQ(ranks.values(0, ranks.got(0)), ones);
    EXPECT_EQ(ranks.values(1, ranks.got(1)), sixes);
    EXPECT_EQ(ranks.values(2, ranks.got(2)), ones);
  });
}

TEST(Nccl, AThreadForEachRankNeedsNoGroup) {
  for (const Policy policy : {Policy::eager, Policy::lazy}) {
    Config config;
    config.devices = kDevices;
    config.policy = policy;
    reset(config);
    {
      Ranks ranks;
      ranks.wait_for_producers();
      std::vector<std::thread> threads;
      for (int rank = 0; rank < kDevices; ++rank) {
        threads.emplace_back([&ranks, rank] { nccl_ok(ranks.reduce(rank)); });
      }
      for (std::thread& thread : threads) thread.join();
      EXPECT_EQ(ranks.values(0, ranks.got(0)), sixes);
    }
    EXPECT_EQ(take_errors(), std::vector<std::string>());
  }
}

TEST(Nccl, ARootThatBroadcastsInPlaceOnlyReads) {
  expect({}, [](Ranks& ranks) {
    ranks.wait_for_producer(0);
    const Stream reader(0);
    reader.wait(ranks.stream(0));
    in_group([&] {
      for (int rank = 0; rank < kDevices; ++rank) {
        float* const data = rank == 0 ? ranks.sent(0) : ranks.got(rank);
        nccl_ok(ncclBroadcast(data, data, kCount, ncclFloat32, 0, ranks.comm(rank),
                              ranks.stream(rank).get()));
      }
    });
    reader.read("forward", ranks.sent(0), kCount);  // at the same time
    ranks.stream(0).wait(reader);
    EXPECT_EQ(ranks.values(2, ranks.got(2)), ones);
  });
}

TEST(Nccl, ABroadcastThatDoesNotWaitForItsSource) {
  expect({"RACE", "ncclBroadcast rank 0 on stream 0 of device 0"}, [](Ranks& ranks) {
    in_group([&] {
      for (int rank = 0; rank < kDevices; ++rank) nccl_ok(ranks.broadcast(rank));
    });
    ranks.wait_for_producers();  // too late
  });
}

TEST(Nccl, AReductionThatDoesNotWaitForOneOfItsSources) {
  expect({"RACE", "ncclReduce rank 2 on stream 4 of device 2"}, [](Ranks& ranks) {
    ranks.wait_for_producer(0);
    ranks.wait_for_producer(1);
    in_group([&] {
      for (int rank = 0; rank < kDevices; ++rank) nccl_ok(ranks.reduce(rank));
    });
    ranks.wait_for_producer(2);
  });
}

TEST(Nccl, AReaderThatDoesNotWaitForTheCollective) {
  expect({"RACE", "ncclReduce rank 0", "reader"}, [](Ranks& ranks) {
    ranks.wait_for_producers();
    const Stream reader(0);
    reader.wait(ranks.stream(0));
    in_group([&] {
      for (int rank = 0; rank < kDevices; ++rank) nccl_ok(ranks.reduce(rank));
    });
    reader.read("reader", ranks.got(0), kCount);
    ranks.stream(0).wait(reader);
  });
}

// The others have sent their part by then, but nothing says that they have been told.
TEST(Nccl, ARankThatSendsIsNotOrderedAfterTheRoot) {
  expect({"RACE", "ncclReduce rank 0", "reader"}, [](Ranks& ranks) {
    ranks.wait_for_producers();
    const Stream reader(0);
    reader.wait(ranks.stream(0));
    in_group([&] {
      for (int rank = 0; rank < kDevices; ++rank) nccl_ok(ranks.reduce(rank));
    });
    reader.wait(ranks.stream(1));
    reader.read("reader", ranks.got(0), kCount);
    ranks.stream(0).wait(reader);
  });
}

TEST(Nccl, RanksThatDisagree) {
  const auto third = [](const std::function<ncclResult_t(Ranks&)>& call) {
    return [call](Ranks& ranks) {
      ranks.wait_for_producers();
      in_group([&] {
        nccl_ok(ranks.broadcast(0));
        nccl_ok(ranks.broadcast(1));
        nccl_ok(call(ranks));
      });
    };
  };
  expect({"NCCL MISMATCH", "rank 2", "32 elements", "64 elements"},
         third([](Ranks& ranks) { return ranks.broadcast(2, 0, kCount / 2); }));
  expect({"NCCL MISMATCH", "rank 2", "of type 2", "of type 7"},
         third([](Ranks& ranks) { return ranks.broadcast(2, 0, kCount, ncclInt32); }));
  expect({"NCCL MISMATCH", "rank 2", "root 1", "root 0"},
         third([](Ranks& ranks) { return ranks.broadcast(2, 1); }));
  expect({"NCCL MISMATCH", "rank 2", "[ncclReduce", "[ncclBroadcast"},
         third([](Ranks& ranks) { return ranks.reduce(2); }));
}

// It is there that the first one connects them.
TEST(Nccl, TheFirstGroupWaitsForEveryRank) {
  expect({"NCCL DEADLOCK: ncclGroupEnd", "the first ncclBroadcast for rank 1"}, [](Ranks& ranks) {
    ranks.wait_for_producers();
    nccl_ok(ncclGroupStart());
    nccl_ok(ranks.broadcast(0));
    nccl_ok(ranks.broadcast(1));
    EXPECT_EQ(ncclGroupEnd(), ncclSystemError);
  });
}

TEST(Nccl, AGroupWithACallThatIsRefusedStartsNothing) {
  expect({}, [](Ranks& ranks) {
    ranks.wait_for_producers();
    for (int root = 0; root < 2; ++root) {
      nccl_ok(ncclGroupStart());
      nccl_ok(ranks.broadcast(0));
      EXPECT_EQ(ncclBroadcast(nullptr, nullptr, 0, ncclUint8, -1, ranks.comm(0), nullptr),
                ncclInvalidArgument);
      nccl_ok(ranks.broadcast(1));
      EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
      in_group([&] {
        for (int rank = 0; rank < kDevices; ++rank) nccl_ok(ranks.broadcast(rank, root));
      });
      EXPECT_EQ(ranks.values(2, ranks.got(2)), root == 0 ? ones : twos);
    }
  });
}

TEST(Nccl, ARankThatDoesNotCallIsNamed) {
  expect({"DEADLOCK", "ncclBroadcast number 1", "lacks rank 2"}, [](Ranks& ranks) {
    ranks.wait_for_producers();
    ranks.connect();
    in_group([&] {
      nccl_ok(ranks.broadcast(0));
      nccl_ok(ranks.broadcast(1));
    });
  });
}

TEST(Nccl, AWaitForAnotherRanksCallInsideTheCollective) {
  expect({"DEADLOCK", "ncclBroadcast"}, [](Ranks& ranks) {
    ranks.wait_for_producers();
    ranks.connect();
    nccl_ok(ranks.broadcast(0));
    ranks.stream(1).wait(ranks.stream(0));  // as another thread might
    std::thread([&ranks] { nccl_ok(ranks.broadcast(1)); }).join();
    std::thread([&ranks] { nccl_ok(ranks.broadcast(2)); }).join();
  });
}

TEST(Nccl, OneThreadForSeveralRanksNeedsAGroup) {
  expect({"NCCL NO GROUP", "ncclBroadcast for rank", "before it for rank 0"}, [](Ranks& ranks) {
    ranks.wait_for_producers();
    ranks.connect();
    for (int rank = 0; rank < kDevices; ++rank) nccl_ok(ranks.broadcast(rank));
  });
}

TEST(Nccl, AStreamOfAnotherDevice) {
  expect({"NCCL WRONG DEVICE", "rank 1, which is device 1", "of device 2"}, [](Ranks& ranks) {
    nccl_ok(ncclGroupStart());
    nccl_ok(ranks.broadcast(0));
    EXPECT_EQ(ncclBroadcast(ranks.sent(1), ranks.got(1), kCount, ncclFloat32, 0, ranks.comm(1),
                            ranks.stream(2).get()),
              ncclUnhandledCudaError);
    EXPECT_EQ(ncclGroupEnd(), ncclUnhandledCudaError);  // and starts nothing
  });
}

TEST(Nccl, SourcesThatAreFreedTooEarly) {
  expect({"ncclReduce rank 1"}, [](Ranks& ranks) {
    ranks.wait_for_producers();
    const Stream owner(1);
    auto data = std::make_unique<Floats>(kCount, owner);
    owner.write("produce", data->data(), kCount, 1);
    ranks.stream(1).wait(owner);
    in_group([&] {
      nccl_ok(ranks.reduce(0));
      nccl_ok(ncclReduce(data->data(), nullptr, kCount, ncclFloat32, ncclSum, 0, ranks.comm(1),
                         ranks.stream(1).get()));
      nccl_ok(ranks.reduce(2));
    });
    data.reset();  // in the order of its owner, which does not wait
    owner.wait(ranks.stream(1));
  });
}

ncclResult_t all_reduce(const Ranks& ranks, int rank, ncclRedOp_t op = ncclSum) {
  return ncclAllReduce(ranks.sent(rank), ranks.got(rank), kCount, ncclFloat32, op, ranks.comm(rank),
                       ranks.stream(rank).get());
}

TEST(Nccl, AnAllReductionGivesEveryRankTheResult) {
  const auto gives = [](ncclRedOp_t op, float value) {
    expect({}, [&](Ranks& ranks) {
      ranks.wait_for_producers();
      in_group([&] {
        for (int rank = 0; rank < kDevices; ++rank) nccl_ok(all_reduce(ranks, rank, op));
      });
      for (int rank = 0; rank < kDevices; ++rank) {
        EXPECT_EQ(ranks.values(rank, ranks.got(rank)), std::vector<float>(kCount, value));
      }
    });
  };
  gives(ncclSum, 6);
  gives(ncclAvg, 2);
  gives(ncclMin, 1);
  gives(ncclMax, 3);
  gives(ncclProd, 6);
}

TEST(Nccl, AnAllReductionOrdersEveryRankAfterAllSources) {
  expect({"RACE", "ncclAllReduce rank 1 on stream 2 of device 1"}, [](Ranks& ranks) {
    ranks.wait_for_producer(0);
    ranks.wait_for_producer(2);
    in_group([&] {
      for (int rank = 0; rank < kDevices; ++rank) nccl_ok(all_reduce(ranks, rank));
    });
    ranks.wait_for_producer(1);
  });
}

TEST(Nccl, GathersAndScattersParts) {
  constexpr std::size_t kPart = kCount / 4;
  expect({}, [](Ranks& ranks) {
    ranks.wait_for_producers();
    in_group([&] {
      for (int rank = 0; rank < kDevices; ++rank) {
        nccl_ok(ncclAllGather(ranks.sent(rank), ranks.got(rank), kPart, ncclFloat32,
                              ranks.comm(rank), ranks.stream(rank).get()));
      }
    });
    for (int rank = 0; rank < kDevices; ++rank) {
      const std::vector<float> all = ranks.values(rank, ranks.got(rank));
      for (std::size_t i = 0; i < 3 * kPart; ++i) {
        EXPECT_EQ(all[i], static_cast<float>(i / kPart + 1));
      }
    }
    in_group([&] {
      for (int rank = 0; rank < kDevices; ++rank) {
        float* const part = ranks.got(rank) + static_cast<std::size_t>(rank) * kPart;
        nccl_ok(ncclReduceScatter(ranks.got(rank), part, kPart, ncclFloat32, ncclSum,
                                  ranks.comm(rank), ranks.stream(rank).get()));
      }
    });
    for (int rank = 0; rank < kDevices; ++rank) {
      const std::vector<float> all = ranks.values(rank, ranks.got(rank));
      EXPECT_EQ(all[static_cast<std::size_t>(rank) * kPart], static_cast<float>(3 * (rank + 1)));
    }
  });
}

TEST(Nccl, AMessageOrdersTheReceiverAfterTheSender) {
  const auto send = [](const Ranks& ranks, int from, int to) {
    return ncclSend(ranks.sent(from), kCount, ncclFloat32, to, ranks.comm(from),
                    ranks.stream(from).get());
  };
  const auto receive = [](const Ranks& ranks, int from, int to) {
    return ncclRecv(ranks.got(to), kCount, ncclFloat32, from, ranks.comm(to),
                    ranks.stream(to).get());
  };
  expect({}, [&](Ranks& ranks) {
    ranks.wait_for_producer(1);
    in_group([&] {
      nccl_ok(receive(ranks, 1, 2));
      nccl_ok(send(ranks, 1, 2));
    });
    EXPECT_EQ(ranks.values(2, ranks.got(2)), twos);
  });
  expect({"RACE", "ncclSend rank 1"}, [&](Ranks& ranks) {
    in_group([&] {
      nccl_ok(send(ranks, 1, 2));
      nccl_ok(receive(ranks, 1, 2));
    });
    ranks.wait_for_producer(1);  // too late
  });
  expect({"DEADLOCK", "message number 1"}, [&](Ranks& ranks) {
    ranks.wait_for_producers();
    in_group([&] {
      for (const int from : {0, 1}) {
        nccl_ok(send(ranks, from, 1 - from));
        nccl_ok(receive(ranks, from, 1 - from));
      }
    });
    std::thread([&] {
      nccl_ok(send(ranks, 0, 1));
      nccl_ok(receive(ranks, 1, 0));
    }).join();
    std::thread([&] {
      nccl_ok(send(ranks, 1, 0));
      nccl_ok(receive(ranks, 0, 1));
    }).join();
  });
  expect({"NCCL MISMATCH", "message 0 from rank 0 to rank 1", "32 elements", "64 elements"},
         [&](Ranks& ranks) {
           ranks.wait_for_producers();
           in_group([&] {
             nccl_ok(send(ranks, 0, 1));
             nccl_ok(ncclRecv(ranks.got(1), kCount / 2, ncclFloat32, 0, ranks.comm(1),
                              ranks.stream(1).get()));
           });
         });
}

// What is aborted waits for nobody and does nothing; the other ranks are left waiting.
TEST(Nccl, AnAbortEndsTheRanksOwnCalls) {
  expect({}, [](Ranks& ranks) {
    ranks.wait_for_producers();
    ranks.connect();
    nccl_ok(all_reduce(ranks, 0));
    nccl_ok(ncclCommAbort(ranks.comm(0)));
    EXPECT_EQ(cudaStreamSynchronize(ranks.stream(0).get()), cudaSuccess);
  });
  expect({"DEADLOCK", "ncclAllReduce"}, [](Ranks& ranks) {
    ranks.wait_for_producers();
    ranks.connect();
    in_group([&] {
      nccl_ok(all_reduce(ranks, 0));
      nccl_ok(all_reduce(ranks, 1));
    });
    nccl_ok(ncclCommAbort(ranks.comm(0)));
  });
}

TEST(Nccl, AnAbortBeforeTheLastCallHasRunLeavesTheOtherRanksWaiting) {
  Config config;
  config.devices = kDevices;
  config.policy = Policy::lazy;
  config.patience_ms = 0;
  reset(config);
  {
    const Ranks ranks;
    ranks.wait_for_producers();
    in_group([&] {
      for (int rank = 0; rank < kDevices; ++rank) nccl_ok(all_reduce(ranks, rank));
    });
    nccl_ok(ncclCommAbort(ranks.comm(0)));
    EXPECT_EQ(cudaStreamSynchronize(ranks.stream(0).get()), cudaSuccess);
    EXPECT_NE(cudaStreamSynchronize(ranks.stream(1).get()), cudaSuccess);
  }
  for (const std::string& error : take_errors()) {
    EXPECT_TRUE(contains(error, {"DEADLOCK"})) << error;
  }
}

TEST(Nccl, ACommunicatorIsNotDestroyedWhileItsCallsRun) {
  expect({"NCCL: ncclCommDestroy for rank 0 while its collectives run"}, [](Ranks& ranks) {
    ranks.wait_for_producers();
    ranks.connect();
    nccl_ok(all_reduce(ranks, 0));
    nccl_ok(ncclCommDestroy(ranks.comm(0)));
    in_group([&] {
      nccl_ok(all_reduce(ranks, 1));
      nccl_ok(all_reduce(ranks, 2));
    });
  });
}

class NcclRefuses : public testing::Test {
 protected:
  void SetUp() override { reset({}); }
  void TearDown() override { EXPECT_EQ(take_errors(), std::vector<std::string>()); }
};

TEST_F(NcclRefuses, TwoRanksOnOneGpu) {
  const int devices[] = {1, 1};
  ncclComm_t comms[2];
  EXPECT_EQ(ncclCommInitAll(comms, 2, devices), ncclInvalidUsage);
  EXPECT_TRUE(contains(ncclGetLastError(nullptr), {"Duplicate GPU", "CUDA device 1"}));
}

TEST_F(NcclRefuses, ADeviceThatIsNotThere) {
  ncclComm_t comms[3];
  EXPECT_EQ(ncclCommInitAll(comms, 3, nullptr), ncclInvalidArgument);
}

TEST_F(NcclRefuses, WithoutADriver) {
  Config config;
  config.driver = false;
  reset(config);
  ncclComm_t comms[2];
  EXPECT_EQ(ncclCommInitAll(comms, 2, nullptr), ncclUnhandledCudaError);
  EXPECT_TRUE(contains(ncclGetLastError(nullptr), {"ncclCommInitAll", "driver"}));
}

TEST_F(NcclRefuses, WhatATestWantsToFail) {
  fail_next("ncclGroupEnd", cudaErrorLaunchFailure);
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclUnhandledCudaError);
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
}

TEST_F(NcclRefuses, ACommunicatorThatWasAborted) {
  ncclComm_t comms[2];
  nccl_ok(ncclCommInitAll(comms, 2, nullptr));
  const Stream stream;
  nccl_ok(ncclCommAbort(comms[0]));
  nccl_ok(ncclCommAbort(comms[1]));
  EXPECT_EQ(ncclBroadcast(nullptr, nullptr, 1, ncclUint8, 0, comms[0], stream.get()),
            ncclInvalidArgument);
  EXPECT_TRUE(only_error(take_errors(), {"NCCL", "a communicator that is none"}));
}

// As a process of its own would: a thread for each rank, on its device.
void on_ranks(const std::vector<int>& devices, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const OnDevice on(devices[rank]);
      body(static_cast<int>(rank));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

using NcclRanks = NcclRefuses;

// One that does not block.
ncclResult_t begin_rank(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return ncclCommInitRankConfig(comm, ranks, id, rank, &config);
}

ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t met = ncclInternalError;
  nccl_ok(ncclCommGetAsyncError(comm, &met));
  return met;
}

ncclResult_t settle(ncclComm_t comm) {
  ncclResult_t met = ncclInProgress;
  while ((met = state_of(comm)) == ncclInProgress) std::this_thread::yield();
  return met;
}

TEST_F(NcclRanks, ThatDoNotBlockComeTogetherAndPart) {
  Config config;
  config.devices = 3;
  reset(config);
  ncclUniqueId id;
  nccl_ok(ncclGetUniqueId(&id));
  on_ranks({2, 0, 1}, [&](int rank) {
    ncclComm_t comm = nullptr;
    EXPECT_EQ(begin_rank(&comm, 3, id, rank), ncclInProgress);
    ASSERT_NE(comm, nullptr);
    EXPECT_EQ(settle(comm), ncclSuccess);
    ncclComm_t part = nullptr;
    EXPECT_EQ(
        ncclCommSplit(comm, rank == 1 ? NCCL_SPLIT_NOCOLOR : 5, rank == 2 ? 0 : 1, &part, nullptr),
        ncclInProgress);
    EXPECT_EQ(part, nullptr);
    EXPECT_EQ(settle(comm), ncclSuccess);
    EXPECT_EQ(part == nullptr, rank == 1);
    if (part != nullptr) {
      EXPECT_EQ(settle(part), ncclSuccess);
    }
    const Stream stream(rank == 0 ? 2 : rank - 1);
    Floats data(kCount, stream);
    stream.write("produce", data.data(), kCount, static_cast<float>(rank));
    if (part != nullptr) {
      EXPECT_EQ(ncclBroadcast(data.data(), data.data(), kCount, ncclFloat32, 0, part, stream.get()),
                ncclInProgress);
      EXPECT_EQ(settle(part), ncclSuccess);
    }
    PageLocked host(kCount);
    ok(cudaMemcpyAsync(host.data(), data.data(), host.bytes(), cudaMemcpyDefault, stream.get()));
    stream.synchronize();
    EXPECT_EQ(host.data()[0], rank == 1 ? 1.0F : 2.0F);
    for (const ncclComm_t each : {part, comm}) {
      if (each == nullptr) continue;
      EXPECT_EQ(ncclCommFinalize(each), ncclInProgress);
      EXPECT_EQ(settle(each), ncclSuccess);
      nccl_ok(ncclCommDestroy(each));
    }
  });
}

TEST_F(NcclRanks, AreRefusedTogetherWhereTwoShareAGpu) {
  ncclUniqueId id;
  nccl_ok(ncclGetUniqueId(&id));
  on_ranks({1, 1}, [&](int rank) {
    ncclComm_t comm = nullptr;
    EXPECT_EQ(begin_rank(&comm, 2, id, rank), ncclInProgress);
    EXPECT_EQ(settle(comm), ncclInvalidUsage);
    EXPECT_TRUE(contains(ncclGetLastError(nullptr), {"Duplicate GPU", "CUDA device 1"}));
    nccl_ok(ncclCommAbort(comm));
  });
}

TEST_F(NcclRanks, ThatDoNotBlockWaitForTheOthersUntilTheyAreAborted) {
  ncclUniqueId id;
  nccl_ok(ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr;
  EXPECT_EQ(begin_rank(&comm, 2, id, 0), ncclInProgress);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(state_of(comm), ncclInProgress);
  EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidArgument);
  EXPECT_TRUE(only_error(take_errors(), {"NCCL NOT READY", "ncclCommDestroy for rank 0"}));
  nccl_ok(ncclCommAbort(comm));
}

TEST_F(NcclRanks, ThatDoNotBlockConnectAtTheirFirstCall) {
  ncclUniqueId id;
  nccl_ok(ncclGetUniqueId(&id));
  std::atomic<bool> looked = false;
  on_ranks({0, 1}, [&](int rank) {
    ncclComm_t comm = nullptr;
    (void)begin_rank(&comm, 2, id, rank);
    EXPECT_EQ(settle(comm), ncclSuccess);
    while (rank == 1 && !looked) std::this_thread::yield();
    const Stream stream(rank);
    Floats data(kCount, stream);
    stream.write("produce", data.data(), kCount, 1.0F);
    const auto sum = [&] {
      return ncclAllReduce(data.data(), data.data(), kCount, ncclFloat32, ncclSum, comm,
                           stream.get());
    };
    EXPECT_EQ(sum(), ncclInProgress);
    for (int i = 0; rank == 0 && i < 10; ++i) EXPECT_EQ(state_of(comm), ncclInProgress);
    looked = true;
    EXPECT_EQ(settle(comm), ncclSuccess);
    stream.synchronize();
    EXPECT_EQ(sum(), ncclInProgress);
    EXPECT_EQ(state_of(comm), ncclInProgress);
    EXPECT_EQ(state_of(comm), ncclSuccess);  // whatever the other rank does
    stream.synchronize();
    nccl_ok(ncclCommAbort(comm));
  });
}

TEST_F(NcclRanks, ThatDoNotBlockKeepTheMemoryOfTheirCallsUntilTheyAreAborted) {
  for (const bool frees_before : {false, true}) {
    const Stream stream;
    ncclUniqueId id;
    std::optional<Floats> data(std::in_place, kCount, stream);
    ncclComm_t comm = nullptr;
    nccl_ok(ncclGetUniqueId(&id));
    EXPECT_EQ(begin_rank(&comm, 1, id, 0), ncclInProgress);
    EXPECT_EQ(settle(comm), ncclSuccess);
    EXPECT_EQ(
        ncclAllReduce(data->data(), data->data(), kCount, ncclFloat32, ncclSum, comm, stream.get()),
        ncclInProgress);
    if (frees_before) data.reset();
    nccl_ok(ncclCommAbort(comm));
    data.reset();
    stream.synchronize();
    const auto errors = take_errors();
    EXPECT_EQ(errors.empty(), !frees_before);
    for (const std::string& error : errors) {
      EXPECT_TRUE(contains(error, {"NCCL FREED MEMORY", "rank 0", "ncclAllReduce"})) << error;
    }
  }
}

TEST_F(NcclRanks, ThatDoNotBlockTakeNoCallBeforeTheyAreReady) {
  ncclUniqueId id;
  nccl_ok(ncclGetUniqueId(&id));
  const Stream stream;
  Floats data(kCount, stream);
  stream.synchronize();
  ncclComm_t comm = nullptr;
  EXPECT_EQ(begin_rank(&comm, 1, id, 0), ncclInProgress);
  const auto broadcast = [&] {
    return ncclBroadcast(data.data(), data.data(), kCount, ncclFloat32, 0, comm, stream.get());
  };
  EXPECT_EQ(broadcast(), ncclInvalidArgument);
  EXPECT_TRUE(only_error(take_errors(), {"NCCL NOT READY", "ncclBroadcast for rank 0",
                                         "whose last call is in progress"}));
  EXPECT_EQ(settle(comm), ncclSuccess);
  EXPECT_EQ(broadcast(), ncclInProgress);
  EXPECT_EQ(broadcast(), ncclInvalidArgument);
  EXPECT_TRUE(only_error(take_errors(), {"NCCL NOT READY"}));
  EXPECT_EQ(settle(comm), ncclSuccess);
  stream.synchronize();
  EXPECT_EQ(ncclCommFinalize(comm), ncclInProgress);
  EXPECT_EQ(settle(comm), ncclSuccess);
  EXPECT_EQ(broadcast(), ncclInvalidArgument);
  EXPECT_TRUE(only_error(take_errors(), {"NCCL NOT READY", "has been finalized"}));
  nccl_ok(ncclCommDestroy(comm));
}

// What follows such a call in its stream comes before the collective.
TEST_F(NcclRanks, ThatDoNotBlockHaveNothingInTheirStreamBeforeTheyAreReady) {
  ncclUniqueId id;
  nccl_ok(ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr;
  (void)begin_rank(&comm, 1, id, 0);
  EXPECT_EQ(settle(comm), ncclSuccess);
  const Stream stream;
  Floats in(kCount, stream);
  Floats out(kCount, stream);
  stream.write("produce", in.data(), kCount, 1.0F);
  stream.write("produce", out.data(), kCount, 0.0F);
  EXPECT_EQ(ncclAllReduce(in.data(), out.data(), kCount, ncclFloat32, ncclSum, comm, stream.get()),
            ncclInProgress);
  PageLocked host(kCount);
  ok(cudaMemcpyAsync(host.data(), out.data(), host.bytes(), cudaMemcpyDefault, stream.get()));
  EXPECT_EQ(settle(comm), ncclSuccess);
  stream.synchronize();
  EXPECT_EQ(host.data()[0], 0.0F);
  nccl_ok(ncclCommAbort(comm));
}

// An abort waits for what is before the communicator's calls, which another abort may have to end.
TEST_F(NcclRanks, ThatDoNotBlockAreAbortedInTheOrderOfTheirCallsOrTogether) {
  Config config;
  config.patience_ms = 0;
  for (const bool together : {false, true}) {
    reset(config);
    std::atomic<int> called = 0;
    ncclUniqueId ids[2];
    for (ncclUniqueId& id : ids) nccl_ok(ncclGetUniqueId(&id));
    on_ranks({0, 1}, [&](int rank) {
      ncclComm_t comms[2];
      for (int i = 0; i < 2; ++i) {
        (void)begin_rank(&comms[i], 2, ids[i], rank);
        EXPECT_EQ(settle(comms[i]), ncclSuccess);
      }
      const Stream stream(rank);
      Floats data(kCount, stream);
      stream.write("produce", data.data(), kCount, 1.0F);
      const auto sum = [&](ncclComm_t comm) {
        (void)ncclAllReduce(data.data(), data.data(), kCount, ncclFloat32, ncclSum, comm,
                            stream.get());
        EXPECT_EQ(settle(comm), ncclSuccess);
      };
      for (const ncclComm_t comm : comms) sum(comm);  // which connects the ranks
      ++called;
      while (called < 2) std::this_thread::yield();
      stream.synchronize();
      if (rank == 0) {
        for (const ncclComm_t comm : comms) sum(comm);  // to which the other does not come
      }
      if (together) nccl_ok(ncclGroupStart());
      nccl_ok(ncclCommAbort(comms[1]));
      nccl_ok(ncclCommAbort(comms[0]));
      if (together) nccl_ok(ncclGroupEnd());
    });
    const auto errors = take_errors();
    EXPECT_EQ(errors.empty(), together);
    for (const std::string& error : errors) {
      EXPECT_TRUE(contains(
          error, {"DEADLOCK: ncclCommAbort waits for", "ncclAllReduce rank 0", "lacks rank 1"}))
          << error;
    }
  }
}

TEST_F(NcclRanks, AreToldOfAnErrorThatATestWants) {
  ncclComm_t comms[1];
  nccl_ok(ncclCommInitAll(comms, 1, nullptr));
  fail_next("ncclCommGetAsyncError", cudaErrorUnknown);
  ncclResult_t met = ncclSuccess;
  nccl_ok(ncclCommGetAsyncError(comms[0], &met));
  EXPECT_EQ(met, ncclRemoteError);
  fail_next("ncclCommGetAsyncError", cudaErrorIllegalAddress);
  nccl_ok(ncclCommGetAsyncError(comms[0], &met));
  EXPECT_EQ(met, ncclUnhandledCudaError);
}

}  // namespace nccl_test
}  // namespace cudasim::test
