// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/runtime/device_guard.hpp>
#include <lockstep/cuda/runtime/error.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/from_blob.hpp>
#include <lockstep/tensor/storage.hpp>

#include <cudasim/cudasim.hpp>

#include "cuda/schedules.hpp"
#include "support/expect_error.hpp"

#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

// Memory that is shared with another user of CUDA: where it is, and whose stream waits for whose.
namespace lockstep {
namespace lent_memory_test {

using testing::throws;

using testing::under_each_policy;
using Values = std::vector<float>;

constexpr std::size_t kCount = 1000;
constexpr std::size_t kBytes = kCount * sizeof(float);

void ok(cudaError_t status) { ASSERT_EQ(status, cudaSuccess) << cudaGetErrorString(status); }

// What another library has on a GPU: memory, and a stream.
class Foreign {
 public:
  explicit Foreign(Device device) : device_(device) {
    const cuda::DeviceGuard guard(device);
    ok(cudaMalloc(&data_, kBytes));
    ok(cudaHostAlloc(&host_, kBytes, cudaHostAllocDefault));
    ok(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;
  ~Foreign() {
    const cuda::DeviceGuard guard(device_);
    ok(cudaStreamSynchronize(stream_));
    ok(cudaStreamDestroy(stream_));
    ok(cudaFree(data_));
    ok(cudaFreeHost(host_));
  }

  float* data() const { return static_cast<float*>(data_); }
  float* host() const { return static_cast<float*>(host_); }
  std::intptr_t stream() const { return reinterpret_cast<std::intptr_t>(stream_); }

  // The elements at `data` as its stream reads them.
  Values read(const void* data) const {
    const cuda::DeviceGuard guard(device_);
    ok(cudaMemcpyAsync(host_, data, kBytes, cudaMemcpyDefault, stream_));
    ok(cudaStreamSynchronize(stream_));
    return {host(), host() + kCount};
  }

 private:
  const Device device_;
  void* data_ = nullptr;
  void* host_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

TEST(LentCudaMemory, IsWorkedOnWhereItIs) {
  const Foreign foreign("cuda:1");
  under_each_policy([&] {
    std::atomic<int> returns{0};
    const auto before = memory_stats("cuda:1").allocations;
    Tensor x = from_blob(foreign.data(), {kCount}, {.device = "cuda:1", .deleter = [&](void* data) {
                                                      EXPECT_EQ(data, foreign.data());
                                                      ++returns;
                                                    }});
    EXPECT_EQ(memory_stats("cuda:1").allocations, before);
    x.fill_(3);
    x.mul_(2);
    EXPECT_EQ(x.to_vector<float>(), Values(kCount, 6));
    x = {};
    while (returns == 0) std::this_thread::yield();
    EXPECT_EQ(returns, 1);
  });
}

// The simulator reports a host that touches memory while a copy still reads it.
TEST(LentCudaMemory, IsGivenBackAfterTheCopiesThatReadIt) {
  const Foreign foreign("cuda:1");
  under_each_policy([&] {
    std::fill_n(foreign.host(), kCount, 5.0F);
    std::atomic<bool> returned{false};
    Tensor x = from_blob(foreign.host(), {kCount}, {.deleter = [&](void* data) {
                           static_cast<float*>(data)[0] = 0;
                           returned = true;
                         }});
    const Tensor there = x.to("cuda:1");
    x = {};
    while (!returned) std::this_thread::yield();
    EXPECT_EQ(there.to_vector<float>(), Values(kCount, 5));
  });
}

TEST(LentCudaMemory, ElsewhereIsAnError) {
  const Foreign foreign("cuda:1");
  Values values(4);
  const auto lent_to = [](float* data, Device device) {
    (void)from_blob(data, {4}, {.device = device});
  };
  EXPECT_TRUE(throws<DeviceError>([&] { lent_to(values.data(), "cuda:1"); }, "from_blob",
                                  "memory of cuda:1", "ordinary host memory"));
  EXPECT_TRUE(throws<DeviceError>([&] { lent_to(foreign.host(), "cuda:1"); }, "from_blob",
                                  "memory of cuda:1", "page-locked host memory"));
  EXPECT_TRUE(throws<DeviceError>([&] { lent_to(foreign.data(), "cuda:2"); }, "from_blob",
                                  "memory of cuda:2", "memory of GPU 1"));
  EXPECT_TRUE(throws<DeviceError>([&] { lent_to(foreign.data(), "cpu"); }, "from_blob",
                                  "memory of cpu", "memory of GPU 1"));
  EXPECT_NO_THROW(lent_to(values.data(), "cpu:1"));
  EXPECT_NO_THROW(lent_to(foreign.host(), "cpu"));
  EXPECT_TRUE(cudasim::take_errors().empty());
}

// Alone in its process, as ctest runs it, this finds no GPU in use.
TEST(LentCudaMemory, OfTheHostGivesNoGpuAContext) {
  const auto before = cudasim::contexts();
  Values values(4);
  EXPECT_EQ(from_blob(values.data(), {4}).numel(), 4);
  EXPECT_EQ(cudasim::contexts(), before);
}

TEST(LentCudaMemory, OfWhichTheDriverCannotTellIsAnErrorOnAGpuAlone) {
  const Foreign foreign("cuda:1");
  (void)ones({1}, {.device = "cuda:1"});
  cudasim::fail_next("cudaPointerGetAttributes", cudaErrorUnknown);
  EXPECT_NO_THROW((void)from_blob(foreign.host(), {4}));
  cudasim::fail_next("cudaPointerGetAttributes", cudaErrorUnknown);
  EXPECT_TRUE(
      throws<DeviceError>([&] { (void)from_blob(foreign.data(), {4}, {.device = "cuda:1"}); },
                          "cudaPointerGetAttributes"));
}

}  // namespace lent_memory_test
}  // namespace lockstep
