// SPDX-License-Identifier: Apache-2.0
#include "cudasim/cudasim.hpp"
#include "cudasim/program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace cudasim::test {
namespace kernel_test {

struct Fill {
  float* data;
  float value;
};

void fill_kernel() {}  // whose address stands for a kernel
void twinless_kernel() {}

const void* address(void (*kernel)()) { return reinterpret_cast<const void*>(kernel); }

std::function<void()> fill_twin(void** arguments, std::vector<MemoryUse>& uses) {
  const auto count = *static_cast<std::size_t*>(arguments[0]);
  const auto fill = *static_cast<Fill*>(arguments[1]);
  uses.push_back({fill.data, count * sizeof(float), true});
  return [count, fill] { std::fill(fill.data, fill.data + count, fill.value); };
}

void register_kernels() { register_twin(address(fill_kernel), "Fill", fill_twin); }

cudaError_t launch(void (*kernel)(), unsigned threads, const Stream& stream, std::size_t count,
                   Fill fill) {
  void* arguments[] = {&count, &fill};
  return cudaLaunchKernel(address(kernel), dim3{1, 1, 1}, dim3{threads, 1, 1}, arguments, 0,
                          stream.get());
}

TEST(CudasimKernel, ItsTwinRunsInStreamOrder) {
  register_kernels();
  for (const Config& config : schedules(1, 1, 5)) {
    reset(config);
    {
      const Stream stream;
      const Floats data(100, stream);
      const PageLocked seen(100);
      ok(launch(fill_kernel, 256, stream, 100, {data.data(), 4}));
      ok(cudaMemcpyAsync(seen.data(), data.data(), 400, cudaMemcpyDeviceToHost, stream.get()));
      stream.synchronize();
      EXPECT_EQ(seen.data()[99], 4);
    }
    EXPECT_EQ(take_errors(), std::vector<std::string>()) << name_of(config);
  }
}

TEST(CudasimKernel, WhatItsTwinDeclaresIsChecked) {
  register_kernels();
  expect_error(
      [] {
        const Stream stream;
        const Floats data(100, stream);
        ok(launch(fill_kernel, 256, stream, 101, {data.data(), 4}));
      },
      {"OUT OF BOUNDS", "Fill on stream 0 of device 0", "4 bytes past"});
}

TEST(CudasimKernel, WithoutATwin) {
  register_kernels();
  expect_error(
      [] {
        const Stream stream;
        EXPECT_EQ(launch(twinless_kernel, 256, stream, 0, {nullptr, 0}),
                  cudaErrorInvalidDeviceFunction);
      },
      {"NO TWIN"});
}

TEST(CudasimKernel, AnImpossibleLaunch) {
  register_kernels();
  reset(Config());
  const Stream stream;
  EXPECT_EQ(launch(fill_kernel, 1025, stream, 0, {nullptr, 0}), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(fill_kernel, 0, stream, 0, {nullptr, 0}), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
}

TEST(CudasimKernel, WhileAnotherDeviceIsCurrent) {
  register_kernels();
  expect_error(
      [] {
        const Stream stream(1);
        EXPECT_EQ(launch(fill_kernel, 256, stream, 0, {nullptr, 0}),
                  cudaErrorInvalidResourceHandle);
      },
      {"WRONG DEVICE", "Fill", "stream 0 of device 1", "device 0 is current"});
}

}  // namespace kernel_test
}  // namespace cudasim::test
