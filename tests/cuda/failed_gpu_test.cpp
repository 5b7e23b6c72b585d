// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/launch/index_fault.hpp>
#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/cuda/runtime/error.hpp>
#include <lockstep/cuda/runtime/other_gpus.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/nccl.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/comm/reduce_add.hpp>
#include <lockstep/parallel/comm/scatter.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/pin_memory.hpp>

#include <cudasim/cudasim.hpp>

#include "cuda/without_nccl.hpp"
#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
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
  cudasim::break_stream(static_cast<cuda::CudaStream&>(stream.state()).bare_handle(),
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

// The next work of the device's current stream comes behind a kernel that faults.
void fail_before_its_work(Device device) {
  const Stream stream = current_stream(device);
  cudasim::break_stream(static_cast<cuda::CudaStream&>(stream.state()).bare_handle(),
                        cudaErrorIllegalAddress);
}

Tensor threes(Device device) { return full({kCount}, 3, {.device = device}); }
bool are_threes(const Tensor& tensor) {
  return tensor.to_vector<float>() == std::vector<float>(kCount, 3);
}

// Whether waiting for `device` is an error because of `failed`.
bool rests_on(Device device, Device failed, const std::function<void()>& wait) {
  const auto result =
      testing::throws<CudaError>(wait,
                                 detail::str("what ", device, " has computed may rest on work of ",
                                             failed, ", which has failed: "),
                                 "cudaErrorIllegalAddress");
  if (!result) std::cerr << result.message() << '\n';
  return !!result;
}

[[noreturn]] void read_what_rests_on_it() {
  (void)are_threes(threes(kGpu).to("cuda:0"));  // tries out what the GPUs can reach
  cudasim::set_policy(cudasim::Policy::lazy);
  fail_before_its_work(kGpu);
  const Tensor copy = threes(kGpu).to("cuda:0");
  const Event after = current_stream("cuda:0").record_event();
  const bool told = rests_on("cuda:0", kGpu, [&] { (void)are_threes(copy); }) &&
                    rests_on("cuda:0", kGpu, [&] { after.synchronize(); }) &&
                    rests_on("cuda:0", kGpu, [&] { synchronize("cuda:0"); });
  leave(told && are_threes(threes("cuda:2")));
}

[[noreturn]] void read_what_rests_on_it_by_another() {
  (void)are_threes(threes("cuda:2").to(kGpu).to("cuda:0"));
  cudasim::set_policy(cudasim::Policy::lazy);
  fail_before_its_work("cuda:2");
  const Tensor copy = threes("cuda:2").to(kGpu).to("cuda:0");
  leave(rests_on("cuda:0", "cuda:2", [&] { (void)are_threes(copy); }));
}

// What it had done before is right.
[[noreturn]] void read_what_it_has_given() {
  cudasim::set_policy(cudasim::Policy::lazy);
  const Tensor copy = threes(kGpu).to("cuda:0");
  const bool before = are_threes(copy);
  fail_the_gpu();
  leave(before && are_threes(copy));
}

[[noreturn]] void read_what_it_has_added_to(bool nccl) {
  std::optional<testing::WithoutNccl> copies;
  if (!nccl) copies.emplace();
  const auto sum = [] {
    return comm::reduce_add(std::vector<Tensor>{threes("cuda:0"), threes(kGpu)}, "cuda:0");
  };
  (void)sum().to_vector<float>();
  cudasim::set_policy(cudasim::Policy::lazy);
  fail_before_its_work(kGpu);
  const Tensor total = sum();
  leave(rests_on("cuda:0", kGpu, [&] { (void)total.to_vector<float>(); }));
}

[[noreturn]] void read_what_a_rank_has_given(bool nccl) {
  std::optional<testing::WithoutNccl> copies;
  if (!nccl) copies.emplace();
  const auto sum = [](const distributed::ProcessGroup& group) {
    const Tensor tensor = threes(group.device());
    (void)group.blocking().all_reduce(tensor);
    return tensor;
  };
  const auto is_right = [](const Tensor& tensor) {
    return tensor.to_vector<float>() == std::vector<float>(kCount, 6);
  };
  bool told = false;
  try {
    distributed::run({"cuda:0", kGpu}, [&](const distributed::ProcessGroup& group) {
      const bool connected = is_right(sum(group));
      (void)group.blocking().barrier();
      if (group.rank() == 0) cudasim::set_policy(cudasim::Policy::lazy);
      (void)group.blocking().barrier();
      if (group.rank() == 1) fail_before_its_work(kGpu);
      const Tensor rests = sum(group);
      if (group.rank() == 1) return;
      told = connected && rests_on(group.device(), kGpu, [&] { (void)is_right(rests); });
    });
  } catch (const DeviceError&) {  // of rank 1
  }
  leave(told);
}

[[noreturn]] void read_what_a_replica_has_given() {
  DataParallel model{nn::Linear{4, 4}, {"cuda:0", kGpu}};
  const Tensor x = ones({6, 4}, {.device = "cuda:0"});
  (void)model(x).to_vector<float>();
  cudasim::set_policy(cudasim::Policy::lazy);
  fail_before_its_work(kGpu);
  const Tensor y = model(x);
  leave(rests_on("cuda:0", kGpu, [&] { (void)y.to_vector<float>(); }));
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

void expect_success(void (*body)()) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(body(), ::testing::ExitedWithCode(0), "");
}

TEST(FailedGpuAndOthersDeathTest, WhatRestsOnItsWorkIsNotRead) {
  expect_success(read_what_rests_on_it);
}

TEST(FailedGpuAndOthersDeathTest, NorIsWhatRestsOnItByWayOfAnother) {
  expect_success(read_what_rests_on_it_by_another);
}

TEST(FailedGpuAndOthersDeathTest, WhatItHadGivenBeforeIsRead) {
  expect_success(read_what_it_has_given);
}

TEST(FailedGpuAndOthersDeathTest, NorIsWhatItHasAddedTo) {
  expect_success([] { read_what_it_has_added_to(false); });
  expect_success([] { read_what_it_has_added_to(true); });
}

TEST(FailedGpuAndOthersDeathTest, NoRankTakesWhatIsInMemoryForASumWithIt) {
  expect_success([] { read_what_a_rank_has_given(false); });
  expect_success([] { read_what_a_rank_has_given(true); });
}

TEST(FailedGpuAndOthersDeathTest, NorDoesWhoReadsAnOutputOfItsReplica) {
  expect_success(read_what_a_replica_has_given);
}

enum class Answer { ended, not_yet, failed };

class Asked : public detail::EventState {
 public:
  explicit Asked(Answer answer) : answer_(answer) {}
  bool query() const override {
    if (answer_ == Answer::failed) throw CudaError("asked", cudaErrorIllegalAddress);
    return answer_ == Answer::ended;
  }
  void synchronize() const override {}
  void wait_for_end() const override {}
  bool precedes_new_work_of(const detail::StreamState&) const override { return false; }

 private:
  const Answer answer_;
};

// What cuda:7 rests on: points of cuda:6.
void rely(const Stream& stream, std::uint64_t number, Answer answer) {
  cuda::OtherGpus::rely(
      "cuda:7", {stream.device(), &stream.state(), number, std::make_shared<const Asked>(answer)});
}
::testing::AssertionResult is_told() {
  return testing::throws<CudaError>([] { cuda::OtherGpus::check("cuda:7"); },
                                    "cuda:7 has computed may rest on work of cuda:6", "asked");
}

// In whatever order they come.
TEST(OtherGpus, TheLastPointOfAStreamStandsForThoseBefore) {
  const Stream stream = default_stream("cuda:6");
  rely(stream, 2, Answer::failed);
  rely(stream, 1, Answer::ended);
  EXPECT_TRUE(is_told());
  rely(stream, 3, Answer::ended);
  cuda::OtherGpus::check("cuda:7");
}

TEST(OtherGpus, WhoAsksAgainIsToldAgain) {
  const std::vector<Stream> streams = {default_stream("cuda:6"), copy_stream("cuda:6"),
                                       pool_stream("cuda:6")};
  rely(streams[0], 1, Answer::ended);
  rely(streams[1], 1, Answer::not_yet);
  rely(streams[2], 1, Answer::failed);
  EXPECT_TRUE(is_told());
  EXPECT_TRUE(is_told());
  for (const Stream& stream : streams) rely(stream, 2, Answer::ended);
  cuda::OtherGpus::check("cuda:7");
}

// Each rests on the others' parts, and on all that these rest on.
TEST(OtherGpus, ACollectiveIsAsIfEachWaitedForEach) {
  using Point = cuda::OtherGpus::Point;
  const auto point_of = [](Device device, std::uint64_t number, Answer answer) {
    const Stream stream = default_stream(device);
    return Point{device, &stream.state(), number, std::make_shared<const Asked>(answer)};
  };
  const std::vector<Device> ranks = {"cuda:5", "cuda:6", "cuda:7"};
  cuda::OtherGpus::rely("cuda:6", point_of("cuda:4", 1, Answer::failed));
  std::vector<Point> ends;
  for (const Device rank : ranks) ends.push_back(point_of(rank, 1, Answer::ended));
  cuda::OtherGpus::rely(ranks, ends);
  for (const Device rank : ranks) {
    EXPECT_TRUE(testing::throws<CudaError>([&] { cuda::OtherGpus::check(rank); },
                                           "may rest on work of cuda:4"));
  }
  ends[0] = point_of("cuda:5", 2, Answer::failed);
  cuda::OtherGpus::rely(ranks, ends);
  const Point ended = point_of("cuda:4", 2, Answer::ended);
  cuda::OtherGpus::rely(ranks, {&ended, 1});
  cuda::OtherGpus::check("cuda:5");  // its own streams tell it
  for (const Device rank : {ranks[1], ranks[2]}) {
    EXPECT_TRUE(testing::throws<CudaError>([&] { cuda::OtherGpus::check(rank); },
                                           "may rest on work of cuda:5"));
  }
  ends[0] = point_of("cuda:5", 3, Answer::ended);
  cuda::OtherGpus::rely(ranks, ends);
  for (const Device rank : ranks) cuda::OtherGpus::check(rank);
}

INSTANTIATE_TEST_SUITE_P(Memory, FailedGpuDeathTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "pinned" : "ordinary"; });

}  // namespace failed_gpu_test
}  // namespace lockstep
