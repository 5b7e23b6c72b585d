// SPDX-License-Identifier: Apache-2.0
#include "cudasim/cudasim.hpp"
#include "cudasim/fiber.hpp"
#include "cudasim/program.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace cudasim::test {
namespace stream_test {

TEST(CudasimStream, TheNullStream) {
  expect_error(
      [] {
        const Stream stream;
        const Floats data(100, stream);
        EXPECT_EQ(cudaMemsetAsync(data.data(), 0, 400, nullptr), cudaErrorInvalidResourceHandle);
      },
      {"NULL STREAM", "cudaMemsetAsync"});
}

TEST(CudasimStream, ABlockingStream) {
  expect_error(
      [] {
        cudaStream_t stream = nullptr;
        ok(cudaStreamCreateWithFlags(&stream, cudaStreamDefault));
        ok(cudaStreamDestroy(stream));
      },
      {"BLOCKING STREAM", "device 0"});
}

TEST(CudasimStream, ADeadStream) {
  expect_error(
      [] {
        cudaStream_t handle = nullptr;
        {
          const Stream stream;
          handle = stream.get();
        }
        EXPECT_EQ(cudaStreamSynchronize(handle), cudaErrorInvalidResourceHandle);
      },
      {"DEAD STREAM", "cudaStreamSynchronize on stream 0 of device 0"});
}

TEST(CudasimStream, WhatADeadStreamWasGivenStillRuns) {
  for (const Config& config : schedules(1, 1, 5)) {
    reset(config);
    bool ran = false;
    {
      const Stream stream;
      stream.run("k", {}, [&ran] { ran = true; });
    }
    ok(cudaDeviceSynchronize());
    EXPECT_TRUE(ran) << name_of(config);
    EXPECT_EQ(take_errors(), std::vector<std::string>());
  }
}

TEST(CudasimStream, NoStreamAtAll) {
  expect_error(
      [] {
        int number = 0;
        auto* const handle = reinterpret_cast<cudaStream_t>(&number);
        EXPECT_EQ(cudaStreamQuery(handle), cudaErrorInvalidResourceHandle);
      },
      {"NOT A STREAM", "cudaStreamQuery"});
}

TEST(CudasimStream, AnEventThatWasNeverRecorded) {
  expect_error(
      [] {
        const Stream stream;
        cudaEvent_t event = nullptr;
        ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        ok(cudaStreamWaitEvent(stream.get(), event, 0));
        ok(cudaEventDestroy(event));
      },
      {"EVENT NEVER RECORDED", "stream 0 of device 0"});
}

TEST(CudasimStream, ADeadEvent) {
  expect_error(
      [] {
        const Stream stream;
        cudaEvent_t event = nullptr;
        ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        ok(cudaEventDestroy(event));
        EXPECT_EQ(cudaEventRecord(event, stream.get()), cudaErrorInvalidResourceHandle);
      },
      {"DEAD EVENT", "cudaEventRecord"});
}

TEST(CudasimStream, AWaitIsForTheLastRecordBeforeIt) {
  for (const Config& config : schedules(1, 2, 5)) {
    reset(config);
    const Stream one;
    const Stream two;
    std::string ran;
    cudaEvent_t event = nullptr;
    ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    ok(cudaEventRecord(event, one.get()));
    one.run("a", {}, [&ran] { ran += 'a'; });
    ok(cudaEventRecord(event, one.get()));
    ok(cudaStreamWaitEvent(two.get(), event, 0));
    ok(cudaEventRecord(event, one.get()));
    two.run("b", {}, [&ran] { ran += 'b'; });
    two.synchronize();
    EXPECT_EQ(ran, "ab") << name_of(config);
    ok(cudaEventDestroy(event));
  }
}

TEST(CudasimStream, AHostFunctionRunsInItsPlace) {
  for (const Config& config : schedules(1, 1, 5)) {
    reset(config);
    const Stream stream;
    std::string ran;
    stream.run("a", {}, [&ran] { ran += 'a'; });
    ok(cudaLaunchHostFunc(
        stream.get(), [](void* data) { *static_cast<std::string*>(data) += 'h'; }, &ran));
    stream.run("b", {}, [&ran] { ran += 'b'; });
    stream.synchronize();
    EXPECT_EQ(ran, "ahb") << name_of(config);
  }
}

TEST(CudasimStream, AHostFunctionThatCallsTheRuntime) {
  expect_error(
      [] {
        const Stream stream;
        ok(cudaLaunchHostFunc(
            stream.get(),
            [](void* data) {
              EXPECT_EQ(cudaStreamQuery(static_cast<cudaStream_t>(data)), cudaErrorNotPermitted);
            },
            stream.get()));
        stream.synchronize();
      },
      {"CALL INSIDE A STREAM", "cudaStreamQuery", "cudaLaunchHostFunc on stream 0"});
}

// A host function may wait for a lock that a thread holds while it calls the runtime.
TEST(CudasimStream, AHostFunctionLetsOtherThreadsIn) {
  reset(Config());
  const Stream stream;
  const Stream other;
  std::atomic<bool> entered{false};
  std::atomic<bool> called{false};
  struct Flags {
    std::atomic<bool>& entered;
    std::atomic<bool>& called;
  } flags{entered, called};
  std::thread thread([&] {
    entered.wait(false);
    other.synchronize();
    called = true;
    called.notify_all();
  });
  ok(cudaLaunchHostFunc(
      stream.get(),
      [](void* data) {
        auto& both = *static_cast<Flags*>(data);
        both.entered = true;
        both.entered.notify_all();
        both.called.wait(false);
      },
      &flags));
  stream.synchronize();
  thread.join();
  EXPECT_TRUE(called);
}

TEST(CudasimStream, ThreadsHaveCurrentDevicesOfTheirOwn) {
  reset(Config());
  ok(cudaSetDevice(1));
  int device = -1;
  std::thread([&device] { ok(cudaGetDevice(&device)); }).join();
  EXPECT_EQ(device, 0);
  ok(cudaGetDevice(&device));
  EXPECT_EQ(device, 1);
  ok(cudaSetDevice(0));
}

TEST(CudasimStream, ManyThreads) {
  for (const Config& config : schedules(4, 4, 3)) {
    reset(config);
    {
      std::vector<std::unique_ptr<Stream>> streams;
      for (int i = 0; i < 4; ++i) streams.push_back(std::make_unique<Stream>(i));
      std::vector<std::thread> threads;
      for (std::size_t i = 0; i < 4; ++i) {
        threads.emplace_back([&stream = *streams[i]] {
          for (int round = 0; round < 50; ++round) {
            const Floats data(100, stream);
            stream.write("fill", data.data(), 100, 1);
            stream.read("use", data.data(), 100);
            if (round % 10 == 0) stream.synchronize();
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
    EXPECT_EQ(take_errors(), std::vector<std::string>()) << name_of(config);
    EXPECT_EQ(leaks(), std::vector<std::string>()) << name_of(config);
  }
}

// Of two streams, each with a part of two collectives, in this order or the other.
void two_collectives(const Stream& one, const Stream& two, bool same_order, std::string& ran) {
  const auto first = make_collective(2, "first");
  const auto second = make_collective(2, "second");
  const auto join = [&ran](const std::shared_ptr<Collective>& collective, const Stream& stream,
                           int rank, const char* name) {
    const OnDevice guard(stream.device());
    join_collective(collective, rank,
                    {stream.get(),
                     name,
                     {},
                     [] {},
                     [&ran, name] {
                       const Unseen unseen;  // the ranks are in no order
                       ran += name;
                     },
                     {true, true}});
  };
  join(first, one, 0, "a");
  join(second, one, 0, "c");
  join(same_order ? first : second, two, 1, "b");
  join(same_order ? second : first, two, 1, "d");
}

TEST(CudasimStream, ACollectiveRunsAsOneStep) {
  for (const Config& config : schedules(2, 2, 5)) {
    reset(config);
    const Stream one(0);
    const Stream two(1);
    std::string ran;
    two_collectives(one, two, true, ran);
    one.synchronize();
    two.synchronize();
    EXPECT_EQ(ran, "abcd") << name_of(config);
    EXPECT_EQ(take_errors(), std::vector<std::string>()) << name_of(config);
  }
}

TEST(CudasimStream, CollectivesInDifferentOrdersDeadlock) {
  for (const Config& config : schedules(2, 2, 5)) {
    reset(config);
    const Stream one(0);
    const Stream two(1);
    std::string ran;
    two_collectives(one, two, false, ran);
    EXPECT_EQ(cudaStreamSynchronize(one.get()), cudaErrorLaunchTimeout);
    const auto errors = take_errors();
    ASSERT_FALSE(errors.empty()) << name_of(config);
    EXPECT_TRUE(contains(errors[0], {"DEADLOCK", "cudaStreamSynchronize", "c on stream 0",
                                     "the collective first waits for one that waits for it"}))
        << errors[0];
    EXPECT_EQ(ran, "");
    EXPECT_EQ(pending(), 0U);  // what could not run is gone
  }
}

TEST(CudasimStream, ACollectiveWithoutOneRankDeadlocks) {
  for (const Config& config : schedules(2, 2, 5)) {
    reset(config);
    const Stream stream;
    const auto collective = make_collective(3, "sum");
    join_collective(collective, 1, {stream.get(), "part", {}, [] {}, [] {}, {true, true, true}});
    EXPECT_EQ(cudaStreamSynchronize(stream.get()), cudaErrorLaunchTimeout);
    const auto errors = take_errors();
    ASSERT_FALSE(errors.empty()) << name_of(config);
    EXPECT_TRUE(contains(errors[0], {"DEADLOCK", "part on stream 0", "sum lacks rank 0 2"}))
        << errors[0];
  }
}

TEST(CudasimStream, ACollectiveWaitsForAnotherThreadsRank) {
  for (const Config& base : schedules(2, 2, 3)) {
    Config config = base;
    config.patience_ms = 60000;
    reset(config);
    const Stream one(0);
    const Stream two(1);
    const auto collective = make_collective(2, "sum");
    const auto join = [&collective](const Stream& stream, int rank) {
      join_collective(collective, rank, {stream.get(), "part", {}, [] {}, [] {}, {true, true}});
    };
    std::thread thread([&] { join(two, 1); });
    join(one, 0);
    one.synchronize();
    thread.join();
    EXPECT_EQ(take_errors(), std::vector<std::string>()) << name_of(config);
  }
}

// The parts are ordered after what comes before each part that they wait for, and only that.
TEST(CudasimStream, ACollectiveOrdersWhatItSays) {
  for (const bool waits : {true, false}) {
    for (const Config& config : schedules(2, 2, 5)) {
      reset(config);
      {
        const Stream one(0);
        const Stream two(1);
        const PageLocked data(100);
        one.write("fill", data.data(), 100, 1);
        const auto collective = make_collective(2, "broadcast");
        join_collective(collective, 0, {one.get(), "root", {}, [] {}, [] {}, {true, false}});
        join_collective(collective, 1, {two.get(), "leaf", {}, [] {}, [] {}, {waits, true}});
        two.read("use", data.data(), 100);
        one.synchronize();
        two.synchronize();
      }
      const auto errors = take_errors();
      EXPECT_EQ(errors.empty(), waits) << name_of(config);
    }
  }
}

cudaEvent_t event_on(const Stream& stream, unsigned flags) {
  cudaEvent_t event = nullptr;
  const OnDevice guard(stream.device());
  ok(cudaEventCreateWithFlags(&event, flags));
  ok(cudaEventRecord(event, stream.get()));
  return event;
}

TEST(CudasimStream, TheTimeBetweenEventsIsThatOfTheirRunning) {
  for (const Config& config : schedules(1, 1, 5)) {
    reset(config);
    const Stream stream;
    const cudaEvent_t first = event_on(stream, cudaEventDefault);
    stream.synchronize();
    const cudaEvent_t second = event_on(stream, cudaEventDefault);
    float ahead = -1;
    if (config.policy == Policy::lazy) {
      EXPECT_EQ(cudaEventElapsedTime(&ahead, first, second), cudaErrorNotReady);
    }
    stream.synchronize();
    ok(cudaEventElapsedTime(&ahead, first, second));
    EXPECT_GT(ahead, 0) << name_of(config);
    float back = 1;
    ok(cudaEventElapsedTime(&back, second, first));
    EXPECT_EQ(back, -ahead);
    for (const cudaEvent_t event : {first, second}) ok(cudaEventDestroy(event));
    EXPECT_EQ(take_errors(), std::vector<std::string>());
  }
}

TEST(CudasimStream, ThereIsNoTimeBetweenEventsWithoutTimingOrOfTwoDevices) {
  expect_error(
      [] {
        const Stream stream;
        const Stream other(1);
        const cudaEvent_t timed = event_on(stream, cudaEventDefault);
        const cudaEvent_t untimed = event_on(stream, cudaEventDisableTiming);
        const cudaEvent_t elsewhere = event_on(other, cudaEventDefault);
        stream.synchronize();
        other.synchronize();
        float ms = 0;
        EXPECT_EQ(cudaEventElapsedTime(&ms, timed, untimed), cudaErrorInvalidResourceHandle);
        EXPECT_EQ(cudaEventElapsedTime(&ms, timed, elsewhere), cudaErrorInvalidResourceHandle);
        for (const cudaEvent_t event : {timed, untimed, elsewhere}) ok(cudaEventDestroy(event));
      },
      {"NO TIME BETWEEN EVENTS"});
}

}  // namespace stream_test
}  // namespace cudasim::test
