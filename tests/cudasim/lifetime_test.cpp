// SPDX-License-Identifier: Apache-2.0
#include "cudasim/cudasim.hpp"
#include "cudasim/program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace cudasim::test {
namespace lifetime_test {

TEST(CudasimLifetime, UseAfterFree) {
  expect_error(
      [] {
        const Stream stream;
        float* data = nullptr;
        {
          const Floats owner(100, stream);
          data = owner.data();
        }
        stream.read("use", data, 100);
      },
      {"USE AFTER FREE", "use on stream 0", "400 bytes of memory of device 0",
       "cudaFreeAsync on stream 0"});
}

TEST(CudasimLifetime, DoubleFree) {
  expect_error(
      [] {
        const Stream stream;
        void* data = nullptr;
        ok(cudaMallocAsync(&data, 100, stream.get()));
        ok(cudaFreeAsync(data, stream.get()));
        EXPECT_EQ(cudaFreeAsync(data, stream.get()), cudaErrorInvalidValue);
      },
      {"DOUBLE FREE", "100 bytes", "cudaFreeAsync on stream 0"});
}

TEST(CudasimLifetime, FreeOfTheMiddle) {
  expect_error(
      [] {
        const Stream stream;
        const Floats data(100, stream);
        EXPECT_EQ(cudaFreeAsync(data.data() + 1, stream.get()), cudaErrorInvalidValue);
      },
      {"BAD FREE", "cudaFreeAsync"});
}

TEST(CudasimLifetime, PastTheEnd) {
  expect_error(
      [] {
        const Stream stream;
        const Floats data(100, stream);
        stream.read("long", data.data() + 50, 51);
      },
      {"OUT OF BOUNDS", "long on stream 0", "4 bytes past 400 bytes"});
}

TEST(CudasimLifetime, NoAllocationAtAll) {
  expect_error(
      [] {
        const Stream stream;
        const Floats data(100, stream);
        stream.read("lost", data.data() + 10000, 1);
      },
      {"OUT OF BOUNDS", "lost", "not allocated"});
}

TEST(CudasimLifetime, ABodyThatWritesMoreThanItSays) {
  expect_error(
      [] {
        const Stream stream;
        const Floats data(100, stream);
        stream.run("long", {data.writing()}, [&data] { data.data()[100] = 1; });
        stream.synchronize();
      },
      {"OUT OF BOUNDS", "behind the end", "400 bytes of memory of device 0"});
}

TEST(CudasimLifetime, ABodyThatTouchesWhatItDoesNotSay) {
  expect_error(
      [] {
        const Stream stream;
        const Floats said(100, stream);
        const Floats other(100, stream);
        stream.run("sly", {said.writing()}, [&] { said.data()[0] = other.data()[0]; });
        stream.synchronize();
      },
      {"UNDECLARED", "sly on stream 0", "reads 400 bytes of memory of device 0"});
}

TEST(CudasimLifetime, ABodyThatWritesWhatItOnlyReads) {
  expect_error(
      [] {
        const Stream stream;
        const Floats data(100, stream);
        stream.run("sly", {data.reading()}, [&] { data.data()[0] = 1; });
        stream.synchronize();
      },
      {"UNDECLARED", "sly on stream 0", "writes 400 bytes"});
}

TEST(CudasimLifetime, TheHostTouchesDeviceMemory) {
  expect_error(
      [] {
        const Stream stream(1);
        const Floats data(100, stream);
        stream.synchronize();
        *static_cast<volatile float*>(data.data()) = 1;
      },
      {"HOST ACCESS", "the host writes 400 bytes of memory of device 1"});
}

// The fast way to open memory to operations opens it to them alone.
TEST(CudasimLifetime, TheHostTouchesDeviceMemoryThatOperationsHaveUsedOften) {
  Config config;
  config.exact_runs = 0;
  reset(config);
  {
    const Stream stream;
    const Floats data(100, stream);
    for (int i = 0; i < 3; ++i) stream.write("fill", data.data(), 100, 1);
    stream.synchronize();
    EXPECT_EQ(*static_cast<const volatile float*>(data.data()), 1);
  }
  EXPECT_TRUE(only_error(take_errors(), {"HOST ACCESS", "the host reads 400 bytes"}));
}

TEST(CudasimLifetime, WithoutTrapsDeviceMemoryIsOpenUntilItIsFreed) {
  Config config;
  config.traps = false;
  reset(config);
  {
    const Stream stream;
    const volatile float* first = nullptr;
    {
      const Floats data(100, stream);
      first = data.data();
      stream.write("fill", data.data(), 100, 1);
      stream.synchronize();
      EXPECT_EQ(*first, 1);
      EXPECT_TRUE(take_errors().empty());
    }
    stream.synchronize();
    (void)*first;
  }
  EXPECT_TRUE(only_error(take_errors(), {"USE AFTER FREE", "the host reads 400 bytes"}));
}

TEST(CudasimLifetime, FreshMemoryIsNotANumber) {
  expect_clean([] {
    const Stream stream;
    const Floats data(1000, stream);
    PageLocked target(1000);
    ok(cudaMemcpyAsync(target.data(), data.data(), data.bytes(), cudaMemcpyDeviceToHost,
                       stream.get()));
    stream.synchronize();
    EXPECT_TRUE(std::all_of(target.data(), target.data() + 1000,
                            [](float value) { return std::isnan(value); }));
  });
}

TEST(CudasimLifetime, PageableMemory) {
  expect_error(
      [] {
        const Stream stream;
        const Floats data(100, stream);
        std::vector<float> source(100, 2);
        ok(cudaMemcpyAsync(data.data(), source.data(), data.bytes(), cudaMemcpyHostToDevice,
                           stream.get()));
      },
      {"PAGEABLE MEMORY", "cudaMemcpyAsync on stream 0"});
  expect_error(
      [] {
        const Stream stream;
        const Floats data(100, stream);
        std::vector<float> target(100);
        stream.write("fill", data.data(), 100, 2);
        ok(cudaMemcpyAsync(target.data(), data.data(), data.bytes(), cudaMemcpyDeviceToHost,
                           stream.get()));
        EXPECT_EQ(target[99], 2);
      },
      {"PAGEABLE MEMORY", "cudaMemcpyAsync on stream 0"});
}

TEST(CudasimLifetime, ASynchronousCopyTakesAnyMemory) {
  expect_clean([] {
    void* data = nullptr;
    ok(cudaMalloc(&data, 400));
    std::vector<float> numbers(100, 2);
    ok(cudaMemcpy(data, numbers.data(), 400, cudaMemcpyHostToDevice));
    std::vector<float> back(100);
    ok(cudaMemcpy(back.data(), data, 400, cudaMemcpyDeviceToHost));
    EXPECT_EQ(back, numbers);
    ok(cudaFree(data));
  });
}

TEST(CudasimLifetime, ASynchronousCopyIsInNoStream) {
  expect_error(
      [] {
        const Stream stream;
        const Floats data(100, stream);
        stream.synchronize();
        stream.write("fill", data.data(), 100, 2);
        std::vector<float> back(100);
        ok(cudaMemcpy(back.data(), data.data(), 400, cudaMemcpyDeviceToHost));
      },
      {"RACE", "fill on stream 0", "cudaMemcpy on the synchronous stream of device 0"});
}

TEST(CudasimLifetime, LeaksAreNamed) {
  reset(Config());
  const Stream stream;
  void* data = nullptr;
  void* plain = nullptr;
  void* host = nullptr;
  cudaEvent_t event = nullptr;
  scope("the leak");
  ok(cudaMallocAsync(&data, 100, stream.get()));
  scope("");
  ok(cudaMalloc(&plain, 200));
  ok(cudaHostAlloc(&host, 300, 0));
  ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  const auto found = leaks();
  ASSERT_EQ(found.size(), 4U);
  const auto names = [&found](std::initializer_list<std::string> parts) {
    return std::any_of(found.begin(), found.end(),
                       [&](const std::string& leak) { return contains(leak, parts); });
  };
  EXPECT_TRUE(names({"100 bytes of memory of device 0", "in the leak"}));
  EXPECT_TRUE(names({"200 bytes of memory of device 0"}));
  EXPECT_TRUE(names({"300 bytes of page-locked memory"}));
  EXPECT_TRUE(names({"event 0 of device 0"}));
  ok(cudaFreeAsync(data, stream.get()));
  ok(cudaFree(plain));
  ok(cudaFreeHost(host));
  ok(cudaEventDestroy(event));
  EXPECT_EQ(leaks(), std::vector<std::string>());
}

// Thousands of allocations pass through a machine; what they leave behind is not much.
TEST(CudasimLifetime, MemoryIsGivenBack) {
  Config config;
  config.memory_bytes = std::size_t{1} << 20;
  reset(config);
  {
    const Stream stream;
    const Floats kept(1000, stream);
    stream.write("fill", kept.data(), 1000, 7);
    std::set<void*> addresses;
    constexpr std::size_t kRounds = 2000;
    for (std::size_t i = 0; i < kRounds; ++i) {
      void* data = nullptr;
      ok(cudaMallocAsync(&data, 100 << 10, stream.get()));
      addresses.insert(data);
      ok(cudaFreeAsync(data, stream.get()));
    }
    // They come back, but late, and never one that is in use.
    EXPECT_LT(addresses.size(), kRounds);
    EXPECT_GT(addresses.size(), 100U);
    EXPECT_EQ(addresses.count(kept.data()), 0U);
  }
  EXPECT_EQ(take_errors(), std::vector<std::string>());
  EXPECT_EQ(leaks(), std::vector<std::string>());
}

}  // namespace lifetime_test
}  // namespace cudasim::test
