// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/cuda_backend.hpp>
#include <lockstep/cuda/memory/memory_limit.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/comm/gather.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/fill.hpp>

#include <cudasim/cudasim.hpp>

#include "cuda/schedules.hpp"
#include "support/allocation_faults.hpp"
#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// The CUDA backend by itself: devices, streams, events, memory, copies, and what bad input meets.
namespace lockstep {
namespace backend_test {

using testing::throws;
using Values = std::vector<float>;

Tensor counting(const Shape& shape, Device device = {}) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  Values values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i % 8191));
  return from_values(values, shape, device);
}

Values values_of(const Tensor& tensor) {
  const Tensor host = empty(tensor.sizes(), {.dtype = tensor.dtype()});
  detail::copy_into(host, tensor);
  const auto* first = host.const_data_ptr<float>();
  return Values(first, first + host.numel());
}

TEST(Devices, AreThoseOfTheRuntime) {
  EXPECT_EQ(device_count(DeviceType::cuda), 8);
  EXPECT_EQ(devices()[1], Device("cuda:1"));
  const DeviceProperties properties = device_properties("cuda:0");
  EXPECT_FALSE(properties.name.empty());
  EXPECT_GT(properties.total_memory, 0U);
  EXPECT_GT(properties.multi_processor_count, 0);
}

TEST(Devices, AnOrdinalOutOfRangeIsAnError) {
  EXPECT_TRUE(throws<DeviceError>([] { (void)ones({2}, {.device = "cuda:8"}); }, "cuda:8",
                                  "out of range", "8 CUDA devices"));
}

TEST(Memory, IsGivenInStreamOrderAndCounted) {
  const auto before = memory_stats("cuda:2");
  {
    const Tensor tensor = zeros({256, 4}, {.device = "cuda:2"});
    const auto during = memory_stats("cuda:2");
    EXPECT_EQ(during.allocated_bytes, before.allocated_bytes + 4096);
    EXPECT_EQ(during.allocations, before.allocations + 1);
    EXPECT_GE(during.peak_bytes, during.allocated_bytes);
    EXPECT_GE(during.reserved_bytes, 4096U);
  }
  EXPECT_EQ(memory_stats("cuda:2").allocated_bytes, before.allocated_bytes);
  synchronize("cuda:2");
  empty_cache("cuda:2");
  EXPECT_EQ(memory_stats("cuda:2").reserved_bytes, 0U);
}

TEST(Memory, OutOfItSaysWhatWasAskedAndWhatIsFree) {
  const Tensor kept = full({4}, 3, {.device = "cuda:1"});
  EXPECT_TRUE(
      throws<OutOfMemoryError>([] { (void)empty({std::int64_t{1} << 40}, {.device = "cuda:1"}); },
                               "cuda:1 is out of memory: 4398046511104 bytes were asked for",
                               "are free", "are in use by tensors"));
  EXPECT_EQ(values_of(kept), (Values{3, 3, 3, 3}));
  EXPECT_EQ(values_of(ones({2}, {.device = "cuda:1"})), (Values{1, 1}));
}

TEST(Memory, ALimitHolds) {
  const std::size_t used = memory_stats("cuda:3").allocated_bytes;
  cuda::set_memory_limit("cuda:3", used + 1024);
  const Tensor fits = empty({256}, {.device = "cuda:3"});
  EXPECT_TRUE(throws<OutOfMemoryError>([] { (void)empty({1}, {.device = "cuda:3"}); }, "cuda:3",
                                       "at most"));
  cuda::set_memory_limit("cuda:3", SIZE_MAX);
  EXPECT_NO_THROW(empty({1}, {.device = "cuda:3"}));
}

TEST(Memory, WhatIsStillToBeFreedIsWaitedForBeforeGivingUp) {
  cudasim::fail_next("cudaMallocFromPoolAsync", cudaErrorMemoryAllocation);
  EXPECT_EQ(values_of(ones({3}, {.device = "cuda:0"})), (Values{1, 1, 1}));
}

// Whichever call or allocation fails when a block is given back that another stream has used.
class BlocksLeft : public ::testing::TestWithParam<bool> {};

TEST_P(BlocksLeft, AreFreeOnceTheStreamsThatUsedThemHaveEnded) {
  const bool until_event = GetParam();
  const Stream other = copy_stream("cuda:2");
  const auto give_back = [&](const std::function<void()>& fail) {
    Tensor used = zeros({256}, {.device = "cuda:2"});
    const Tensor copy = empty({256}, {.device = "cuda:2"});
    other.wait_stream(current_stream("cuda:2"));
    copy.record_stream(other);
    detail::copy_bytes(copy, used, other);
    if (until_event) {
      used.impl()->storage->keep_until(other, other.record_event());
    } else {
      used.record_stream(other);
    }
    fail();
    used = Tensor();
    const bool allocation = testing::end_allocation_faults();
    return cudasim::end_failing_calls() + (allocation ? "new" : "");
  };
  const auto allocated = [] { return memory_stats("cuda:2").allocated_bytes; };
  const std::size_t before = allocated();
  int lost = 0;
  const auto walk = [&](const std::function<void(std::uint64_t)>& fail) {
    for (std::uint64_t n = 0;; ++n) {
      const std::string failed = give_back([&] { fail(n); });
      SCOPED_TRACE(failed);
      if (allocated() > before) ++lost;
      cuda::set_memory_limit("cuda:2", before + 1024);
      EXPECT_NO_THROW((void)empty({256}, {.device = "cuda:2"}));
      cuda::set_memory_limit("cuda:2", SIZE_MAX);
      EXPECT_EQ(allocated(), before);
      synchronize("cuda:2");
      empty_cache("cuda:2");
      EXPECT_EQ(memory_stats("cuda:2").reserved_bytes, 0U);
      if (failed.empty()) return;
    }
  };
  testing::under(cudasim::Policy::lazy, 1, [&] {
    walk([](std::uint64_t n) { cudasim::fail_call(n, cudaErrorLaunchOutOfResources); });
    walk([](std::uint64_t n) { testing::fail_allocation(n); });
  });
  EXPECT_GT(lost, 3);
}

INSTANTIATE_TEST_SUITE_P(Memory, BlocksLeft, ::testing::Bool());

TEST(Memory, ABlockThatTwoGpusHaveUsedIsLeftForBoth) {
  const std::size_t before = memory_stats("cuda:2").allocated_bytes;
  Tensor used = zeros({256}, {.device = "cuda:2"});
  Tensor there;
  testing::under(cudasim::Policy::lazy, 1, [&] {
    used.record_stream(copy_stream("cuda:2"));
    used.record_stream(current_stream("cuda:3"));
    there = used.to("cuda:3") + 1;
    cudasim::fail_next("cudaEventRecord", cudaErrorLaunchOutOfResources);
    used = Tensor();
    EXPECT_EQ(memory_stats("cuda:2").allocated_bytes, before + 1024);
    empty_cache("cuda:2");
  });
  EXPECT_EQ(memory_stats("cuda:2").allocated_bytes, before);
  EXPECT_EQ(values_of(there), Values(256, 1));
}

TEST(Copies, GoBothWaysInPiecesAndWhole) {
  for (const std::int64_t count : {1, 1000, 16384, 16385, 3 << 20}) {
    const Tensor host = counting({count});
    const Tensor there = host.to("cuda:1");
    const Tensor back = there.to("cuda:2").to("cpu:1").to("cpu");
    EXPECT_EQ(values_of(back), values_of(host)) << count;
  }
}

TEST(Copies, OfRowsThatLieApart) {
  for (const auto& [rows, columns] : {std::pair{7, 5}, {3, 3 << 19}, {40000, 40}}) {
    const Tensor host = counting({rows, columns});
    const Tensor part = host.narrow(1, columns / 3, columns / 2);
    const Tensor whole = empty({rows, columns}, {.device = "cuda:1"});
    auto& backend = cuda::CudaBackend::instance();
    const auto lines = static_cast<std::size_t>(rows);
    const auto width = static_cast<std::size_t>(columns / 2) * 4;
    const auto pitch = static_cast<std::size_t>(columns) * 4;
    const Tensor packed = empty({rows, columns / 2}, {.device = "cuda:1"});
    const Stream stream = current_stream("cuda:1");
    const auto copy = [&](const Tensor& to, const Tensor& from, const detail::Pitched& shape) {
      backend.copy({to.impl()->data(), to.device(), from.impl()->data(), from.device(), shape,
                    &stream.state()});
    };
    copy(packed, part, {width, lines, width, pitch});
    EXPECT_EQ(values_of(packed), values_of(part));
    whole.zero_();
    copy(whole, packed, {width, lines, pitch, width});
    const Tensor back = zeros({rows, columns});
    copy(back, whole, {width, lines, pitch, pitch});
    stream.synchronize();
    EXPECT_EQ(values_of(back.narrow(1, 0, columns / 2)), values_of(part));
  }
}

TEST(Streams, OfADeviceAreItsOwn) {
  EXPECT_EQ(default_stream("cuda:0"), default_stream("cuda:0"));
  EXPECT_NE(default_stream("cuda:0"), copy_stream("cuda:0"));
  EXPECT_NE(default_stream("cuda:0"), default_stream("cuda:1"));
  EXPECT_NE(pool_stream("cuda:0"), pool_stream("cuda:0"));
  EXPECT_EQ(pool_stream("cuda:3").device(), Device("cuda:3"));
}

TEST(Streams, AnEventHappensWhenTheWorkBeforeItHasEnded) {
  const Stream stream = pool_stream("cuda:0");
  cudasim::set_policy(cudasim::Policy::lazy);
  const StreamGuard guard(stream);
  const Tensor tensor = ones({8}, {.device = "cuda:0"});
  const Event event = stream.record_event();
  event.synchronize();
  EXPECT_TRUE(event.query());
  EXPECT_TRUE(stream.query());
}

TEST(Streams, AGpuWaitsForAHostStreamAndTheOtherWayRound) {
  const Tensor host = counting({70000}, "cpu:1");
  const Stream copies = copy_stream("cpu:1");
  const Stream gpu = current_stream("cuda:0");
  gpu.wait_stream(copies);
  const Tensor there = host.to("cuda:0");
  copies.wait_stream(gpu);
  EXPECT_EQ(values_of(there.to("cpu:1")), values_of(host));
}

TEST(Errors, CarryCallDeviceAndCode) {
  cudasim::fail_next("cudaStreamWaitEvent", cudaErrorInvalidResourceHandle);
  const Tensor busy = ones({8}, {.device = "cuda:1"});
  cudasim::set_policy(cudasim::Policy::lazy);
  const Tensor more = ones({8}, {.device = "cuda:1"});
  try {
    copy_stream("cuda:0").wait_stream(current_stream("cuda:1"));
    FAIL() << "nothing was thrown";
  } catch (const CudaError& error) {
    EXPECT_EQ(error.code(), cudaErrorInvalidResourceHandle);
    const std::string text = error.what();
    EXPECT_NE(text.find("cudaStreamWaitEvent on cuda:0"), std::string::npos) << text;
    EXPECT_NE(text.find("cudaErrorInvalidResourceHandle, 400"), std::string::npos) << text;
  }
}

// The copy is made by the device's copy stream, in the background; what it had issued when it
// failed has ended, or the GPU would go on with memory that its owner may have given back.
TEST(Errors, OfACopyToAHostDeviceComeToWhoeverReadsIt) {
  const Tensor first = counting({300, 200}, "cuda:0");
  const Tensor second = counting({300, 200}, "cuda:1");
  const auto read = [&](const std::vector<Tensor>& there) {
    return values_of(comm::gather(there, 0, "cpu:0").narrow(0, 0, 200));
  };
  cudasim::set_policy(cudasim::Policy::lazy);
  // The latter are packed, into memory that is given back before anybody reads the copy.
  for (const bool packed : {false, true}) {
    const std::vector<Tensor> there =
        packed ? std::vector{first.t(), second.t()} : std::vector{first, second};
    const Values right = read(there);
    for (const char* gpu : {"cuda:0", "cuda:1"}) synchronize(Device(gpu));
    cudasim::fail_next("cudaLaunchHostFunc", cudaErrorLaunchOutOfResources);
    EXPECT_TRUE(throws<CudaError>([&] { (void)read(there); }, "cudaLaunchHostFunc"));
    EXPECT_TRUE(cuda::CudaDevice::at("cuda:0").bridge.idle());
    EXPECT_EQ(read(there), right);
  }
  EXPECT_NO_THROW(synchronize("cpu:0"));
}

TEST(Errors, AKernelThatCannotBeLaunchedIsNamed) {
  cudasim::fail_next("cudaLaunchKernel", cudaErrorInvalidConfiguration);
  EXPECT_TRUE(throws<CudaError>([] { (void)ones({4}, {.device = "cuda:0"}); }, "launch of ",
                                "FillKernel", "cuda:0"));
}

TEST(Errors, OfWorkThatFaultedSayThatTheyLast) {
  const Stream stream = pool_stream("cuda:4");
  cudasim::break_stream(static_cast<cuda::CudaStream&>(stream.state()).bare_handle(),
                        cudaErrorIllegalAddress);
  EXPECT_TRUE(throws<CudaError>([&] { stream.synchronize(); }, "cuda:4", "cudaErrorIllegalAddress",
                                "unusable in this process", "CUDA_LAUNCH_BLOCKING=1"));
}

}  // namespace backend_test
}  // namespace lockstep
