// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/launch/index_fault.hpp>
#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/comm/scatter.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/pin_memory.hpp>

#include <cudasim/cudasim.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

// A GPU that has failed takes neither the process with it nor the memory of the host: what it was
// using stays unused, and everything else goes on. Each test is a process of its own.
namespace lockstep {
namespace failed_gpu_test {

const Device kGpu = "cuda:1";
constexpr std::int64_t kCount = 5000;

[[noreturn]] void leave(bool right) { std::_Exit(right ? 0 : 1); }

void fail_the_gpu() {
  const Stream stream = pool_stream(kGpu);
  cudasim::break_stream(static_cast<cuda::CudaStream&>(stream.state()).handle(),
                        cudaErrorIllegalAddress);
  try {
    stream.synchronize();
  } catch (const CudaError&) {
    return;
  }
  leave(false);
}

// Memory of the host that the GPU's copy stream is recorded on, and may still be reading.
Tensor copied(bool pinned) {
  std::optional<PinMemoryGuard> guard;
  if (pinned) guard.emplace();
  Tensor batch = ones({kCount});
  (void)comm::scatter(batch, {kGpu});
  return batch;
}

// Several times, as each of them would take what those before have left.
bool host_goes_on(const void* lost) {
  std::vector<Tensor> fresh;
  for (int i = 0; i < 4; ++i) {
    fresh.push_back(ones({kCount}));
    fresh.back().mul_(2);
    if (fresh.back().const_data_ptr<float>() == lost) return false;
    if (fresh.back().to_vector<float>() != std::vector<float>(kCount, 2)) return false;
  }
  fresh.clear();
  empty_cache("cpu");
  return ones({kCount}).to_vector<float>() == std::vector<float>(kCount, 1);
}

[[noreturn]] void free_afterwards(bool pinned) {
  cudasim::set_policy(cudasim::Policy::lazy);
  Tensor batch = copied(pinned);
  const void* const data = batch.impl()->data();
  fail_the_gpu();
  batch = Tensor();
  leave(host_goes_on(data));
}

[[noreturn]] void free_before(bool pinned) {
  cudasim::set_policy(cudasim::Policy::lazy);
  const void* const data = copied(pinned).impl()->data();
  fail_the_gpu();
  leave(host_goes_on(data));
}

// Where the host has waited, it looks for indices that kernels of other GPUs have met, too.
[[noreturn]] void wait_for_another() {
  (void)cuda::IndexFaults::instance().of(pool_stream(kGpu).state());
  const Tensor other = full({kCount}, 3, {.device = "cuda:0"});
  fail_the_gpu();
  leave(other.to_vector<float>() == std::vector<float>(kCount, 3));
}

class FailedGpuDeathTest : public ::testing::TestWithParam<bool> {
 protected:
  FailedGpuDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_P(FailedGpuDeathTest, HostMemoryThatItUsedIsFreed) {
  EXPECT_EXIT(free_afterwards(GetParam()), ::testing::ExitedWithCode(0), "");
}

TEST_P(FailedGpuDeathTest, HostMemoryThatWasFreedBeforeIsNotUsedAgain) {
  EXPECT_EXIT(free_before(GetParam()), ::testing::ExitedWithCode(0), "");
}

TEST(FailedGpuAndOthersDeathTest, ThoseThatWorkAreRead) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(wait_for_another(), ::testing::ExitedWithCode(0), "");
}

INSTANTIATE_TEST_SUITE_P(Memory, FailedGpuDeathTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "pinned" : "ordinary"; });

}  // namespace failed_gpu_test
}  // namespace lockstep
