// SPDX-License-Identifier: Apache-2.0
#include "cudasim/cudasim.hpp"
#include "cudasim/program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

// As crt/device_functions.h and crt/host_runtime.h declare them, which only nvcc can read.
extern "C" {
void** CUDARTAPI __cudaRegisterFatBinary(void* binary);
void CUDARTAPI __cudaRegisterFatBinaryEnd(void** handle);
void CUDARTAPI __cudaUnregisterFatBinary(void** handle);
char CUDARTAPI __cudaInitModule(void** handle);
void CUDARTAPI __cudaRegisterFunction(void** handle, const char* kernel, char* device,
                                      const char* name, int threads, uint3* thread, uint3* block,
                                      dim3* block_size, dim3* grid_size, int* warp_size);
unsigned CUDARTAPI __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
                                               CUstream_st* stream);
cudaError_t CUDARTAPI __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared,
                                                 void* stream);
cudaError_t CUDARTAPI __cudaGetKernel(cudaKernel_t* handle, const void* kernel);
cudaError_t CUDARTAPI __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block,
                                         void** arguments, size_t shared, cudaStream_t stream);
}

namespace cudasim::test {
namespace kernel_test {

struct Fill {
  float* data;
  float value;
};

void fill_kernel() {}  // whose address stands for a kernel, as the stub does that nvcc makes
void twinless_kernel() {}

const void* address(void (*kernel)()) { return reinterpret_cast<const void*>(kernel); }

std::function<void()> fill_twin(void** arguments, std::vector<MemoryUse>& uses) {
  const auto count = *static_cast<std::size_t*>(arguments[0]);
  const auto fill = *static_cast<Fill*>(arguments[1]);
  uses.push_back({fill.data, count * sizeof(float), true});
  return [count, fill] { std::fill(fill.data, fill.data + count, fill.value); };
}

void register_kernels() {
  void** handle = __cudaRegisterFatBinary(nullptr);
  const auto add = [handle](void (*kernel)(), const char* name) {
    __cudaRegisterFunction(handle, static_cast<const char*>(address(kernel)), nullptr, name, -1,
                           nullptr, nullptr, nullptr, nullptr, nullptr);
  };
  add(fill_kernel, "mangled_fill");
  add(twinless_kernel, "mangled_twinless");
  __cudaRegisterFatBinaryEnd(handle);
  EXPECT_EQ(__cudaInitModule(handle), 1);
  register_twin(address(fill_kernel), "Fill", fill_twin);
}

// What nvcc makes of kernel<<<1, threads, 0, stream>>>(count, fill).
cudaError_t launch(void (*kernel)(), unsigned threads, const Stream& stream, std::size_t count,
                   Fill fill) {
  EXPECT_EQ(__cudaPushCallConfiguration(dim3{1, 1, 1}, dim3{threads, 1, 1}, 0, stream.get()), 0U);
  dim3 grid{};
  dim3 block{};
  std::size_t shared = 1;
  cudaStream_t on = nullptr;
  ok(__cudaPopCallConfiguration(&grid, &block, &shared, &on));
  EXPECT_EQ(on, stream.get());
  EXPECT_EQ(block.x, threads);
  EXPECT_EQ(shared, 0U);
  cudaKernel_t handle = nullptr;
  ok(__cudaGetKernel(&handle, address(kernel)));
  void* arguments[] = {&count, &fill};
  return __cudaLaunchKernel(handle, grid, block, arguments, shared, on);
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
      {"NO TWIN", "mangled_twinless"});
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

TEST(CudasimKernel, Attributes) {
  register_kernels();
  reset(Config());
  cudaFuncAttributes attributes{};
  ok(cudaFuncGetAttributes(&attributes, address(fill_kernel)));
  EXPECT_EQ(attributes.maxThreadsPerBlock, 1024);
  int number = 0;
  EXPECT_EQ(cudaFuncGetAttributes(&attributes, &number), cudaErrorInvalidDeviceFunction);
}

}  // namespace kernel_test
}  // namespace cudasim::test
