// SPDX-License-Identifier: Apache-2.0
#include "cudasim/cudasim.hpp"
#include "cudasim/program.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace cudasim::test {
namespace call_test {

TEST(CudasimCall, IsRecordedInOrder) {
  Config config;
  config.fibers = false;  // it waits for nothing
  reset(config);
  const Stream one(1);
  const PageLocked source(100);
  ok(cudaSetDevice(1));
  const Floats data(100, one);
  cudaEvent_t event = nullptr;
  ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  record_calls(true);
  ok(cudaMemcpyAsync(data.data(), source.data(), 400, cudaMemcpyHostToDevice, one.get()));
  ok(cudaEventRecord(event, one.get()));
  enqueue(one.get(), "kernel", {}, [] {});
  const std::vector<Call> calls = take_calls();
  record_calls(false);
  ok(cudaEventDestroy(event));
  ok(cudaSetDevice(0));
  EXPECT_TRUE(take_calls().empty());
  ASSERT_EQ(calls.size(), 3U);
  EXPECT_EQ(calls[0].function, "cudaMemcpyAsync");
  EXPECT_EQ(calls[0].device, 1);
  EXPECT_EQ(calls[0].stream, 0);
  EXPECT_EQ(calls[0].event, -1);
  EXPECT_EQ(calls[0].target, data.data());
  EXPECT_EQ(calls[0].source, source.data());
  EXPECT_EQ(calls[0].bytes, 400U);
  EXPECT_EQ(calls[1].function, "cudaEventRecord");
  EXPECT_EQ(calls[1].event, 0);
  EXPECT_EQ(calls[1].stream, stream_number(one.get()));
  EXPECT_EQ(calls[2].function, "enqueue");
  EXPECT_EQ(calls[2].name, "kernel");
}

TEST(CudasimCall, FailsAsOftenAsAskedFor) {
  reset(Config());
  const Stream stream;
  fail_next("cudaMallocAsync", cudaErrorMemoryAllocation, 2);
  void* data = nullptr;
  EXPECT_EQ(cudaMallocAsync(&data, 100, stream.get()), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMallocAsync(&data, 100, stream.get()), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  ok(cudaMallocAsync(&data, 100, stream.get()));
  ok(cudaFreeAsync(data, stream.get()));
  EXPECT_EQ(leaks(), std::vector<std::string>());
}

TEST(CudasimCall, OfAThreadFailsWhereItsNumberSays) {
  reset(Config());
  const Stream stream;
  fail_call(1, cudaErrorUnknown);
  std::thread([] { ok(cudaSetDevice(0)); }).join();  // does not count
  ok(cudaStreamQuery(stream.get()));
  EXPECT_EQ(cudaStreamQuery(stream.get()), cudaErrorUnknown);
  ok(cudaStreamQuery(stream.get()));
  EXPECT_EQ(end_failing_calls(), "cudaStreamQuery");
  fail_call(0, cudaErrorUnknown);
  EXPECT_EQ(end_failing_calls(), "");
  ok(cudaStreamQuery(stream.get()));

  int runs = 0;
  fail_call(1, cudaErrorIllegalAddress, 0);
  enqueue(stream.get(), "before", {}, [&] { ++runs; });
  EXPECT_EQ(cudaStreamQuery(stream.get()), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaStreamQuery(stream.get()), cudaErrorIllegalAddress);
  EXPECT_EQ(end_failing_calls(), "cudaStreamQuery");
  EXPECT_EQ(runs, 1);
  mend();
  ok(cudaStreamQuery(stream.get()));
}

TEST(CudasimCall, AFaultIsSeenWhenItHasRun) {
  Config config;
  config.policy = Policy::lazy;
  reset(config);
  const Stream stream;
  break_stream(stream.get(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream.get()), cudaErrorNotReady);
  (void)cudaGetLastError();
  EXPECT_EQ(cudaStreamSynchronize(stream.get()), cudaErrorIllegalAddress);
  mend();
}

TEST(CudasimCall, AFaultStays) {
  reset(Config());
  const Stream stream;
  const Stream elsewhere(1);
  {
    const Floats data(100, stream);
    break_stream(stream.get(), cudaErrorIllegalAddress);
    bool ran = false;
    enqueue(stream.get(), "kernel", {}, [&ran] { ran = true; });
    EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
    EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);  // sticky
    void* other = nullptr;
    EXPECT_EQ(cudaMallocAsync(&other, 100, stream.get()), cudaErrorIllegalAddress);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    EXPECT_FALSE(ran);
    ok(cudaStreamSynchronize(elsewhere.get()));  // another device
    mend();
    EXPECT_EQ(cudaStreamQuery(stream.get()), cudaSuccess);
  }
  stream.synchronize();
  EXPECT_EQ(leaks(), std::vector<std::string>());
  EXPECT_EQ(take_errors(), std::vector<std::string>());
}

// The memory goes, so that a test can go on; the call says nevertheless what a GPU's would.
TEST(CudasimCall, AFreeOnABrokenDevice) {
  reset(Config());
  const Stream stream;
  void* data = nullptr;
  ok(cudaMallocAsync(&data, 100, stream.get()));
  break_stream(stream.get(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaFreeAsync(data, stream.get()), cudaErrorIllegalAddress);
  mend();
  EXPECT_EQ(leaks(), std::vector<std::string>());
}

TEST(CudasimCall, ErrorsAreTakenOnce) {
  reset(Config());
  report("something");
  EXPECT_TRUE(only_error(take_errors(), {"something"}));
  EXPECT_TRUE(take_errors().empty());
}

}  // namespace call_test
}  // namespace cudasim::test
