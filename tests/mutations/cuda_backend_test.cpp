// SPDX-License-Identifier: Apache-2.0
#include "mutations/gpu_tensors.hpp"

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/kernels/copy_sixteens.hpp>
#include <lockstep/cuda/launch/index_fault.hpp>
#include <lockstep/cuda/runtime/stream_timer.hpp>
#include <lockstep/ops/kernels/elementwise_kernels.hpp>
#include <lockstep/parallel/comm/broadcast.hpp>
#include <lockstep/parallel/comm/detail/transfer.hpp>
#include <lockstep/parallel/comm/gather.hpp>
#include <lockstep/parallel/comm/reduce_add.hpp>
#include <lockstep/parallel/comm/scatter.hpp>
#include <lockstep/parallel/replicas/replica_cache.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/from_blob.hpp>
#include <lockstep/tensor/pin_memory.hpp>

#include <cudasim/cudasim.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

// What the CUDA backend orders, on the simulated runtime: `run` deletes one wait, record, guard or
// synchronisation of the headers at a time and demands that this fails under every schedule.
namespace lockstep {
namespace cuda_backend_test {

using testing::at;
using testing::kGpus;
using testing::on_a_new_thread;
using testing::values_of;

using Values = std::vector<float>;

struct Copied {
  View<const float> in;
  View<float> out;
  LOCKSTEP_HD void operator()(std::size_t i) const { out[i] = in[i]; }
};

constexpr std::size_t kMiB = std::size_t{1} << 20;

[[maybe_unused]] const bool registered = [] {
  cudasim::Config machine = cudasim::config_from_environment();
  machine.devices = 5;
  machine.memory_bytes = 64 * kMiB;  // filling a GPU takes no time
  cudasim::reset(machine);
  testing::register_kernels(
      cuda::Kernels<Copied, cuda::CopyFew,
                    detail::BinaryKernel<float, float, detail::Plus<float>>>{});
  testing::register_gpus();
  return true;
}();

Tensor counting(std::int64_t count) {
  Values values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i % 509));
  return from_values(values, {count}, Device());
}

// Work of the device's current stream that reads `tensor` into the result.
Tensor read_by_kernel(const Tensor& tensor) { return testing::by_kernel<Copied>(tensor); }

TEST(CudaOrder, ScatterComputeGather) {
  const Tensor batch = counting(3000);
  for (int round = 0; round < 3; ++round) {
    std::vector<Tensor> results;
    for (const Tensor& chunk : comm::scatter(batch, kGpus)) {
      results.push_back(read_by_kernel(chunk));
    }
    Tensor whole = comm::gather(results, 0, kGpus[1]);
    results.clear();
    EXPECT_EQ(values_of(read_by_kernel(whole)), values_of(batch));
  }
}

TEST(CudaOrder, BroadcastFromAGpu) {
  const Tensor source = at(counting(500), kGpus[0]);
  Tensor made = read_by_kernel(source);
  std::vector<Tensor> copies = comm::broadcast(made, kGpus);
  made = Tensor();
  for (Tensor& copy : copies) copy = read_by_kernel(copy);
  for (const Tensor& copy : copies) EXPECT_EQ(values_of(copy), values_of(source));
}

TEST(CudaOrder, CopyBetweenGpus) {
  const Tensor source = at(counting(500), kGpus[0]);
  Tensor made = read_by_kernel(source);
  const Tensor there = at(made, kGpus[1]);
  made = Tensor();
  EXPECT_EQ(values_of(there), values_of(source));
}

TEST(CudaOrder, CopyToTheHostHasEnded) {
  cudasim::set_policy(cudasim::Policy::lazy);
  EXPECT_EQ(values_of(at(counting(500), kGpus[0])), values_of(counting(500)));
}

TEST(CudaOrder, CopyOnAnotherStreamThanItsMemoryIsOf) {
  const Tensor source = at(counting(500), kGpus[0]);
  const Tensor there = at(counting(500), kGpus[1]);
  const StreamGuard other(copy_stream(kGpus[1]));
  current_stream(kGpus[1]).wait_stream(default_stream(kGpus[1]));
  detail::copy_into(there, source);
}

TEST(CudaOrder, HostDevicesAndGpusMixed) {
  const Tensor batch = counting(60000);
  const Tensor there = at(batch, "cpu:1");
  const std::vector<Tensor> chunks = comm::scatter(there, {"cuda:1", "cpu:0", "cuda:2"});
  std::vector<Tensor> results = {read_by_kernel(chunks[0]), chunks[1], read_by_kernel(chunks[2])};
  EXPECT_EQ(values_of(comm::gather(results, 0, Device("cpu:1"))), values_of(batch));
}

TEST(CudaOrder, StagingBlocksAreUsedAgainOnlyWhenTheyAreFree) {
  std::vector<Tensor> there;
  std::vector<Tensor> here;
  for (std::int64_t i = 0; i < 24; ++i) {
    here.push_back(counting(700 + i));
    there.push_back(at(here.back(), "cuda:1"));
  }
  for (std::size_t i = 0; i < here.size(); ++i) EXPECT_EQ(values_of(there[i]), values_of(here[i]));
}

TEST(CudaOrder, SynchronizeWaits) {
  const Tensor tensor = at(counting(100), "cuda:2");
  const Tensor result = read_by_kernel(tensor);
  const Event event = current_stream("cuda:2").record_event();
  event.synchronize();
  EXPECT_TRUE(event.query());
}

TEST(CudaOrder, AStagingBlockThatHasNoEventIsFreeWhenItsStreamHasEnded) {
  const Tensor first = counting(700);
  const Tensor second = counting(701);
  const Tensor there = empty({700}, {.device = "cuda:1"});
  cudasim::fail_next("cudaEventRecord", cudaErrorMemoryAllocation);
  detail::copy_into(there, first);
  const Tensor beside = at(second, "cuda:1");
  EXPECT_EQ(values_of(there), values_of(first));
  EXPECT_EQ(values_of(beside), values_of(second));
}

// The same memory, lent: no kernel of another GPU reads it where it is.
Tensor lent(const Tensor& tensor) {
  return from_blob(tensor.impl()->data(), tensor.sizes(),
                   {.device = tensor.device(), .owner = std::make_shared<Tensor>(tensor)});
}

void sum_over_gpus(bool with_lent) {
  const Tensor summand = counting(500);
  std::vector<Tensor> parts;
  for (const Device& gpu : kGpus) parts.push_back(read_by_kernel(at(summand, gpu)));
  if (with_lent) parts[2] = lent(parts[2]);
  const Tensor sum = comm::reduce_add(parts, kGpus[1]);
  parts.clear();
  Values expected = values_of(summand);
  for (float& value : expected) value *= 3;
  EXPECT_EQ(values_of(sum), expected);
}

TEST(CudaOrder, SumOverGpus) { sum_over_gpus(false); }
TEST(CudaOrder, SumOverGpusAlone) { sum_over_gpus(true); }

TEST(CudaOrder, WhatIsOverwrittenHasBeenReadBefore) {
  const Tensor batch = counting(3000);
  const std::vector<Tensor> chunks = comm::scatter(batch, {kGpus[0], kGpus[1]});
  const Tensor out = at(counting(3000), kGpus[2]);
  const Tensor before = read_by_kernel(out);
  (void)comm::gather_out(chunks, out);
  EXPECT_EQ(values_of(read_by_kernel(out)), values_of(batch));
}

TEST(CudaOrder, WhatIsOverwrittenHasBeenReadOnEveryStream) {
  const std::vector<Tensor> chunks = comm::scatter(counting(3000), kGpus);
  const Tensor out = at(counting(3000), kGpus[2]);
  synchronize(kGpus[2]);
  const Stream other = pool_stream(kGpus[2]);
  out.record_stream(other);
  const StreamGuard guard(other);
  const Tensor before = read_by_kernel(out);
  {
    const StreamGuard first(default_stream(kGpus[2]));
    (void)comm::gather_out(chunks, out);
    EXPECT_EQ(values_of(read_by_kernel(out)), values_of(counting(3000)));
  }
}

TEST(CudaOrder, AReplicaIsReadBeforeItIsCopiedAnew) {
  detail::ReplicaCache cache;
  const std::vector<Tensor> originals = {at(counting(500), kGpus[0])};
  const std::vector<Device> devices = {kGpus[0], kGpus[1]};
  const Tensor replica = cache.refresh(originals, devices)[1];
  const Tensor before = read_by_kernel(replica);
  originals[0].mark_changed();
  (void)cache.refresh(originals, devices);
  EXPECT_EQ(values_of(read_by_kernel(replica)), values_of(originals[0]));
}

TEST(CudaOrder, MemoryIsKeptForACopyThatNobodyFinished) {
  const Tensor source = at(counting(500), kGpus[0]);
  const Tensor out = at(counting(500), kGpus[1]);
  const comm::detail::Transfer transfer(kGpus[1]);
  transfer.overwrite(out);
  comm::detail::CopiesTogether alone;
  transfer.copy(out, source, comm::detail::whole_of(out), alone);
  alone.issue();
}

// A copy through the host is work of the stream that it is issued to: one of either GPU's, or of a
// third.
void copy_through_the_host() {
  const Tensor source = at(counting(60000), kGpus[0]);
  for (const Device& on : kGpus) {
    const Stream stream = current_stream(on);
    Tensor made = read_by_kernel(source);
    const Tensor there = empty(made.sizes(), {.device = kGpus[1]});
    stream.wait_stream(current_stream(kGpus[0]));
    stream.wait_stream(current_stream(kGpus[1]));
    made.record_stream(stream);
    detail::backend_of(on).copy({there.impl()->data(), there.device(), made.impl()->data(),
                                 made.device(), detail::Pitched{60000 * sizeof(float)},
                                 &stream.state()});
    made = Tensor();
    current_stream(kGpus[1]).wait_stream(stream);
    EXPECT_EQ(values_of(read_by_kernel(there)), values_of(source)) << "on a stream of " << on;
  }
}

[[noreturn]] void run_without_peer_access(void (*body)()) {
  cudasim::Config config = cudasim::config_from_environment();
  config.peer_access = false;
  cudasim::reset(config);
  body();
  const std::vector<std::string> errors = cudasim::take_errors();
  for (const std::string& error : errors) std::cerr << error << '\n';
  std::_Exit(errors.empty() && !::testing::Test::HasFailure() ? 0 : 1);
}

// A process of its own, since a process decides once what its machine is.
TEST(CudaOrderDeathTest, CopiesThroughTheHost) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_without_peer_access(&copy_through_the_host), ::testing::ExitedWithCode(0), "");
}

constexpr std::int64_t kMostOfIt = 40 * kMiB / sizeof(float);

TEST(CudaOrder, MemoryThatIsStillToBeFreedIsWaitedFor) {
  cudasim::set_policy(cudasim::Policy::lazy);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  { const Tensor first = empty({kMostOfIt}, {.device = "cuda:3"}); }
  EXPECT_NO_THROW(empty({kMostOfIt}, {.device = "cuda:3"}));
}

TEST(CudaOrder, WhatIsFreeIsToldOfTheGpuThatIsOutOfMemory) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  const Tensor first = empty({kMostOfIt}, {.device = "cuda:3"});
  std::string message;
  try {
    (void)empty({kMostOfIt}, {.device = "cuda:3"});
  } catch (const OutOfMemoryError& error) {
    message = error.what();
  }
  EXPECT_NE(message.find(detail::str(24 * kMiB, " of ", 64 * kMiB, " are free")), std::string::npos)
      << message;
}

TEST(CudaOrder, TimesAreThoseOfEventsThatHaveHappened) {
  cudasim::set_policy(cudasim::Policy::lazy);
  const Tensor read = read_by_kernel(at(counting(100), "cuda:2"));
  const std::unique_ptr<profile::detail::DeviceMark> mark(
      cuda::mark_stream(Device("cuda:2"), nullptr));
  EXPECT_TRUE(mark->time().has_value());
}

// What another backend's stream has been told to wait for; a GPU cannot.
class HostWork final : public detail::EventState {
 public:
  bool query() const override { return done_; }
  void synchronize() const override { done_ = true; }
  void wait_for_end() const override { synchronize(); }
  bool precedes_new_work_of(const detail::StreamState&) const override { return done_; }

 private:
  mutable bool done_ = false;
};

TEST(CudaOrder, WorkOfTheHostIsWaitedForByTheCaller) {
  const auto work = std::make_shared<HostWork>();
  current_stream("cuda:1").state().wait(work);
  EXPECT_TRUE(work->query());
}

TEST(CudaContexts, OfStagingMemory) {
  const Tensor there = empty({800}, {.device = "cuda:4"});
  on_a_new_thread([&] { detail::copy_into(there, counting(800)); });
}

void copy_through_the_host_on_a_new_thread() {
  // What a small copy leaves behind, such as events, but no block that is large enough.
  EXPECT_EQ(values_of(at(at(counting(500), kGpus[0]), kGpus[1])), values_of(counting(500)));
  const Tensor source = at(counting(60000), kGpus[0]);
  const Tensor there = empty({60000}, {.device = kGpus[1]});
  for (const Device& gpu : kGpus) synchronize(gpu);
  on_a_new_thread([&] { detail::copy_into(there, source); });
}

TEST(CudaContextsDeathTest, OfStagingMemoryBetweenGpus) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_without_peer_access(&copy_through_the_host_on_a_new_thread),
              ::testing::ExitedWithCode(0), "");
}

TEST(CudaContexts, OfPinnedMemory) {
  const Tensor first = empty({1}, {.device = "cuda:4"});
  on_a_new_thread([] {
    const PinMemoryGuard pinned;
    EXPECT_TRUE(empty({50000}).is_pinned());
  });
}

TEST(CudaContexts, OfIndexFaults) {
  const Stream stream = current_stream("cuda:4");
  on_a_new_thread(
      [&] { EXPECT_EQ(cuda::IndexFaults::instance().of(stream.state()).data->written, 0U); });
}

}  // namespace cuda_backend_test
}  // namespace lockstep

#include "cudasim/suite/main.cpp"
