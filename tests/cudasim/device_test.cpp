// SPDX-License-Identifier: Apache-2.0
#include "cudasim/cudasim.hpp"
#include "cudasim/program.hpp"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace cudasim::test {
namespace device_test {

Config without_peers() {
  Config config;
  config.peer_access = false;
  return config;
}

TEST(CudasimDevice, AKernelWhileAnotherDeviceIsCurrent) {
  expect_error(
      [] {
        const Stream stream(1);
        const OnDevice guard(0);
        enqueue(stream.get(), "astray", {}, [] { FAIL() << "must not run"; });
        EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
      },
      {"WRONG DEVICE", "astray", "stream 0 of device 1", "device 0 is current"});
}

TEST(CudasimDevice, ACallThatNamesAStreamHasAContextOnTheCurrentDevice) {
  reset({});
  cudaStream_t stream = nullptr;
  std::thread([&] {
    ok(cudaSetDevice(1));
    ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }).join();
  EXPECT_EQ(contexts(), std::vector<int>{1});
  std::thread([&] { ok(cudaStreamQuery(stream)); }).join();
  EXPECT_EQ(contexts(), (std::vector<int>{0, 1}));
  ok(cudaStreamDestroy(stream));
  EXPECT_EQ(take_errors(), std::vector<std::string>());
}

TEST(CudasimDevice, MemoryOfAnotherDeviceWithoutAccess) {
  expect_error(
      [] {
        const Stream here(0);
        const Stream there(1);
        Floats data(100, there);
        here.wait(there);
        here.read("reach", data.data(), 100);
        data.record_stream(here);
      },
      {"WRONG DEVICE", "reach on stream 0 of device 0", "400 bytes of memory of device 1",
       "without peer access"});
}

TEST(CudasimDevice, AccessToThePoolOpensIt) {
  expect_clean([] {
    cudaMemPool_t pool = nullptr;
    ok(cudaDeviceGetDefaultMemPool(&pool, 1));
    cudaMemAccessDesc access{};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = 0;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    ok(cudaMemPoolSetAccess(pool, &access, 1));
    const Stream here(0);
    const Stream there(1);
    Floats data(100, there);
    here.wait(there);
    here.read("reach", data.data(), 100);
    data.record_stream(here);
  });
}

TEST(CudasimDevice, APeerCopyNeedsNoAccess) {
  Config config = without_peers();
  reset(config);
  int can = 1;
  ok(cudaDeviceCanAccessPeer(&can, 0, 1));
  EXPECT_EQ(can, 0);
  {
    const Stream here(0);
    const Stream there(1);
    Floats from(100, here);
    here.write("fill", from.data(), 100, 3);
    const Floats to(100, there);
    there.wait(here);
    ok(cudaMemcpyPeerAsync(to.data(), 1, from.data(), 0, 400, there.get()));
    from.record_stream(there);
    PageLocked seen(100);
    const OnDevice on(1);
    ok(cudaMemcpyAsync(seen.data(), to.data(), 400, cudaMemcpyDeviceToHost, there.get()));
    there.synchronize();
    EXPECT_EQ(seen.data()[99], 3);
  }
  EXPECT_EQ(take_errors(), std::vector<std::string>());
}

TEST(CudasimDevice, APlainCopyBetweenDevicesNeedsAccess) {
  expect_error(without_peers(),
               [] {
                 const Stream here(0);
                 const Stream there(1);
                 const Floats from(100, here);
                 here.synchronize();
                 const Floats to(100, there);
                 const OnDevice on(1);
                 ok(cudaMemcpyAsync(to.data(), from.data(), 400, cudaMemcpyDefault, there.get()));
                 there.synchronize();
               },
               {"WRONG DEVICE", "cudaMemcpyAsync on stream 1 of device 1", "memory of device 0"});
}

TEST(CudasimDevice, ACopyOfPoolMemoryWantsTheDeviceOfItsStreamCurrent) {
  expect_error(
      {},
      [] {
        const Stream there(1);
        const Floats data(100, there);
        PageLocked seen(100);
        ok(cudaMemcpyAsync(seen.data(), data.data(), 400, cudaMemcpyDeviceToHost, there.get()));
        there.synchronize();
      },
      {"WRONG DEVICE", "cudaMemcpyAsync of memory from a pool on stream 0 of device 1",
       "while device 0 is current"});
}

TEST(CudasimDevice, APeerCopyNamesItsDevices) {
  expect_error(
      [] {
        const Stream here(0);
        const Floats from(100, here);
        const Floats to(100, here);
        EXPECT_EQ(cudaMemcpyPeerAsync(to.data(), 1, from.data(), 0, 400, here.get()),
                  cudaErrorInvalidValue);
      },
      {"WRONG DEVICE", "cudaMemcpyPeerAsync to device 1 and from device 0"});
}

TEST(CudasimDevice, PeersThatGarbleWhatTheyCopy) {
  Config config;
  config.peer_data = false;
  reset(config);
  const Stream here(0);
  const Stream there(1);
  Floats from(100, here);
  here.write("fill", from.data(), 100, 3);
  const Floats to(100, there);
  there.wait(here);
  ok(cudaMemcpyPeerAsync(to.data(), 1, from.data(), 0, 400, there.get()));
  from.record_stream(there);
  PageLocked seen(100);
  const OnDevice on(1);
  ok(cudaMemcpyAsync(seen.data(), to.data(), 400, cudaMemcpyDeviceToHost, there.get()));
  there.synchronize();
  EXPECT_NE(seen.data()[99], 3);
}

TEST(CudasimDevice, TheKindOfACopy) {
  expect_error(
      [] {
        const Stream stream;
        const Floats from(100, stream);
        const PageLocked to(100);
        EXPECT_EQ(
            cudaMemcpyAsync(to.data(), from.data(), 400, cudaMemcpyHostToDevice, stream.get()),
            cudaErrorInvalidValue);
      },
      {"WRONG KIND", "cudaMemcpyAsync"});
}

TEST(CudasimDevice, AnEventOfAnotherDevice) {
  expect_error(
      [] {
        const Stream stream(1);
        cudaEvent_t event = nullptr;
        ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        EXPECT_EQ(cudaEventRecord(event, stream.get()), cudaErrorInvalidResourceHandle);
        ok(cudaEventDestroy(event));
      },
      {"WRONG DEVICE", "event 0 of device 0", "stream 0 of device 1"});
}

TEST(CudasimDevice, WithoutADriver) {
  Config config;
  config.driver = false;
  reset(config);
  int count = -7;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  EXPECT_EQ(count, -7);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInsufficientDriver);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInsufficientDriver);
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, 1), cudaErrorInsufficientDriver);
  EXPECT_EQ(cudaHostAlloc(&data, 1, 0), cudaErrorInsufficientDriver);
  EXPECT_EQ(cudaSetDevice(0), cudaErrorInsufficientDriver);
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaErrorInsufficientDriver);
  EXPECT_EQ(std::string(cudaGetErrorName(cudaErrorInsufficientDriver)),
            "cudaErrorInsufficientDriver");
  EXPECT_EQ(std::string(cudaGetErrorString(cudaErrorInsufficientDriver)),
            "CUDA driver version is insufficient for CUDA runtime version");
}

TEST(CudasimDevice, WithoutADevice) {
  Config config;
  config.devices = 0;
  reset(config);
  int count = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(cudaSetDevice(0), cudaErrorNoDevice);
}

TEST(CudasimDevice, WhatItSaysOfItself) {
  Config config;
  config.devices = 3;
  reset(config);
  int count = 0;
  ok(cudaGetDeviceCount(&count));
  EXPECT_EQ(count, 3);
  cudaDeviceProp properties{};
  ok(cudaGetDeviceProperties(&properties, 2));
  EXPECT_EQ(std::string(properties.name), "Simulated GPU 2");
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 3), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(3), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  const Stream stream(1);
  int device = -1;
  ok(cudaStreamGetDevice(stream.get(), &device));
  EXPECT_EQ(device, 1);
}

TEST(CudasimDevice, WhereMemoryIs) {
  reset(Config());
  const Stream stream(1);
  const Floats data(100, stream);
  const PageLocked host(100);
  float here = 0;
  cudaPointerAttributes attributes{};
  ok(cudaPointerGetAttributes(&attributes, data.data() + 99));
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 1);
  ok(cudaPointerGetAttributes(&attributes, host.data()));
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  ok(cudaPointerGetAttributes(&attributes, &here));
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
}

}  // namespace device_test
}  // namespace cudasim::test
