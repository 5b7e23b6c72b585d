// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/cuda/runtime/device_guard.hpp>
#include <lockstep/cuda/runtime/error.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/empty.hpp>

#include <cudasim/cudasim.hpp>

#include <gtest/gtest.h>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <thread>
#include <vector>

// Which GPUs a process takes memory of by having a context there: those that it uses. Each test is
// a process of its own.
namespace lockstep {
namespace cuda_context_test {

[[noreturn]] void leave(bool right) { std::_Exit(right && cudasim::take_errors().empty() ? 0 : 1); }

void use(Device device) {
  const Tensor tensor = full({3000}, 2, {.device = device});
  tensor.mul_(3);
  if (tensor.to("cpu").to_vector<float>()[2999] != 6) leave(false);
}

[[noreturn]] void use_one_gpu() {
  use("cuda:1");
  std::thread([] { use("cuda:1"); }).join();
  leave(cudasim::contexts() == std::vector<int>{1});
}

TEST(CudaContextDeathTest, AProcessOfOneGpuHasItsContextOnly) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(use_one_gpu(), ::testing::ExitedWithCode(0), "");
}

[[noreturn]] void call_first_on_new_threads() {
  // Blocks up to half a MiB are kept, for empty_cache; larger ones go back to the runtime at once.
  ::setenv("LOCKSTEP_CUDA_MEMORY_CACHE", "1", 1);
  const Device gpu = "cuda:1";
  use(gpu);
  const Stream stream = current_stream(gpu);
  const Stream other = copy_stream(gpu);
  Tensor tensor = full({200000}, 2, {.device = gpu});
  const Event event(stream.state().record());
  const std::vector<std::function<void()>> calls{
      [&] { (void)empty({50000}, {.device = gpu}); },
      [&] { tensor = Tensor(); },
      [&] { (void)event.query(); },
      [&] { event.synchronize(); },
      [&] { (void)stream.query(); },
      [&] { stream.synchronize(); },
      [&] { (void)stream.state().record(); },
      [&] { other.state().wait(event.state()); },
      [&] { static_cast<cuda::CudaStream&>(stream.state()).drain(); },
      [&] { empty_cache(gpu); },
  };
  bool right = true;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    std::thread(calls[i]).join();
    const bool alone = cudasim::contexts() == std::vector<int>{1};
    if (right && !alone) std::cerr << "call " << i << " has made a context\n";
    right = right && alone;
  }
  leave(right);
}

// The runtime makes GPU 0 current in a thread that has chosen none, also for a call that needs
// none.
TEST(CudaContextDeathTest, NoCallThatAThreadBeginsWithMakesAContextOnGpu0) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(call_first_on_new_threads(), ::testing::ExitedWithCode(0), "");
}

void pass_through(Device device) {
  const cuda::DeviceGuard guard(device);
  if (cudasim::current_device() != device.index) leave(false);
}

[[noreturn]] void come_back() {
  pass_through("cuda:2");
  bool right = cudasim::current_device() == 2 && cudasim::contexts() == std::vector<int>{2};
  pass_through("cuda:3");
  right = right && cudasim::contexts() == std::vector<int>{2, 3};
  // The program's own: 0 is in use from here on.
  std::thread([] { (void)cudaSetDevice(0); }).join();
  pass_through("cuda:3");
  right = right && cudasim::current_device() == 0;
  (void)cudaSetDevice(4);
  pass_through("cuda:3");
  leave(right && cudasim::current_device() == 4);
}

// What the program chose stays its choice: the guard makes it current again as soon as it may.
TEST(CudaContextDeathTest, TheProgramsGpuIsMadeCurrentAgainOnceItIsInUse) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(come_back(), ::testing::ExitedWithCode(0), "");
}

[[noreturn]] void choose_meanwhile() {
  pass_through("cuda:2");
  (void)cudaSetDevice(5);
  pass_through("cuda:2");
  const bool right = cudasim::current_device() == 5;
  pass_through("cuda:5");
  leave(right && cudasim::current_device() == 5 && cudasim::contexts() == std::vector<int>{2, 5});
}

// A choice that the program makes while the thread is elsewhere counts.
TEST(CudaContextDeathTest, AGpuThatTheProgramChoosesMeanwhileIsKept) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(choose_meanwhile(), ::testing::ExitedWithCode(0), "");
}

[[noreturn]] void come_back_after_a_failure() {
  use("cuda:2");
  bool right = true;
  bool failed = true;
  for (std::uint64_t n = 0; failed; ++n) {
    (void)cudaSetDevice(4);
    cudasim::fail_call(n, cudaErrorMemoryAllocation);
    try {
      pass_through("cuda:2");
    } catch (const CudaError&) {
    }
    failed = !cudasim::end_failing_calls().empty();
    right = right && cudaGetLastError() == cudaSuccess;
    pass_through("cuda:3");
    right = right && cudasim::current_device() == 4;
  }
  leave(right);
}

TEST(CudaContextDeathTest, AFailureDoesNotChangeTheProgramsGpuForGood) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(come_back_after_a_failure(), ::testing::ExitedWithCode(0), "");
}

}  // namespace cuda_context_test
}  // namespace lockstep
