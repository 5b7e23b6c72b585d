// SPDX-License-Identifier: Apache-2.0
#include <lockstep/data/prefetch.hpp>

#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/runtime/error.hpp>
#include <lockstep/data/dataloader.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/elementwise.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include <cudasim/cudasim.hpp>

#include "cuda/call_lines.hpp"
#include "cuda/schedules.hpp"
#include "data/batch_source.hpp"
#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

// Prefetch onto GPUs: what it issues in which order, and that nothing touches memory too early.
namespace lockstep {
namespace prefetch_test {

using data::prefetch;
using testing::are;
using testing::BatchSource;
using testing::for_each_device;
using testing::gpus;
using testing::joined;
using testing::Lines;
using testing::Recorder;
using testing::throws;
using Values = std::vector<float>;

Tensor plus_one(const Tensor& chunk) {
  return detail::map<float, float>(chunk, detail::BindRight<float, detail::Plus<float>>{{}, 1});
}

// `count` batches of 60 rows for each device.
BatchSource<Tensor> numbered(std::int64_t count, std::size_t devices) {
  return {count, [devices](std::int64_t i) {
            return full({static_cast<std::int64_t>(60 * devices), 3}, double(i));
          }};
}

class PrefetchCalls : public ::testing::TestWithParam<std::size_t> {
 protected:
  const std::vector<Device> devices_ = gpus(GetParam());

  // All that is issued for a batch and to take it; nothing waits for a compute stream.
  void copy_then_wait() const {
    Recorder recorder(devices_);
    std::atomic<bool> looked{false};
    const BatchSource<Tensor> source(2, [&](std::int64_t i) {
      if (i == 1) looked.wait(false);
      return full({static_cast<std::int64_t>(60 * devices_.size()), 3}, 0);
    });
    auto range = prefetch(source, devices_);
    const auto batch = range.begin();
    const Lines lines = recorder.take();
    looked = true;
    looked.notify_all();
    EXPECT_TRUE(are(lines,
                    joined(for_each_device(devices_, {"copy #: allocate", "copy #: copy"}),
                           for_each_device(devices_, {"compute #: waits for copy #"})),
                    false));
  }

  void take_use_and_drop(std::int64_t depth) const {
    const BatchSource<Tensor> source = numbered(7, devices_.size());
    std::vector<std::vector<Tensor>> results;
    for (const auto& parts : prefetch(source, devices_, {.depth = depth})) {
      auto& row = results.emplace_back();
      for (const Tensor& part : parts) row.push_back(plus_one(part));
    }
    ASSERT_EQ(results.size(), 7U);
    for (std::size_t i = 0; i < results.size(); ++i) {
      for (const Tensor& result : results[i]) {
        EXPECT_EQ(result.to_vector<float>(), Values(60 * 3, static_cast<float>(i) + 1));
      }
    }
  }
};

TEST_P(PrefetchCalls, CopyThenWait) {
  testing::under(cudasim::Policy::lazy, 1, [&] { copy_then_wait(); });
}

TEST_P(PrefetchCalls, TakeUseAndDropUnderEachSchedule) {
  testing::under_many_schedules([&] { take_use_and_drop(2); });
}

TEST_P(PrefetchCalls, AnyDepth) {
  for (const std::int64_t depth : {1, 3, 4}) {
    testing::under_each_policy([&] { take_use_and_drop(depth); }, 3);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, PrefetchCalls, ::testing::Values(1, 2, 4));

TEST(PrefetchOnGpus, WhatTheLoaderMakesIsPageLockedAndNotStaged) {
  BatchSource<Tensor> source = numbered(4, 1);
  for (const Tensor& batch : prefetch(source, "cpu")) EXPECT_FALSE(batch.is_pinned());
  bool pinned = true;
  BatchSource<Tensor> checked(4, [&](std::int64_t i) {
    const Tensor batch = full({30}, double(i));
    pinned = pinned && batch.is_pinned();
    return batch;
  });
  for (const Tensor& batch : prefetch(checked, "cuda:0")) EXPECT_EQ(batch.device().index, 0);
  EXPECT_TRUE(pinned);
}

TEST(PrefetchOnGpus, WorkersMakePageLockedBatches) {
  const data::TensorDataset rows{arange(64, {.dtype = Dtype::f32})};
  for (const std::int64_t workers : {1, 2, 4}) {
    data::DataLoader loader{rows, {.batch_size = 8, .num_workers = workers}};
    const auto before = pinned_memory_stats().allocations;
    float first = 0;
    for (auto [batch] : prefetch(loader, "cuda:1")) {
      EXPECT_EQ(batch.to_vector<float>()[0], first);
      first += 8;
    }
    EXPECT_EQ(first, 64);
    EXPECT_GE(pinned_memory_stats().allocations, before + 8);
  }
}

// The compute stream runs nothing of its own accord; the copies of what comes next do run.
TEST(PrefetchOnGpus, TheNextBatchIsCopiedBesideTheComputeOfTheOneInUse) {
  const Device device("cuda:0");
  const Stream compute = default_stream(device);
  BatchSource<Tensor> source = numbered(4, 1);
  auto range = prefetch(source, device);
  auto batch = range.begin();
  source.wait_for_loaded(3);  // so that all of batch 1 has been issued
  synchronize(device);
  cudasim::set_policy(cudasim::Policy::starve, cudasim::stream_number(testing::handle(compute)));
  const Tensor result = plus_one(*batch);
  ++batch;
  EXPECT_TRUE(copy_stream(device).query() || !compute.query());
  EXPECT_FALSE(compute.query());
  const Tensor second = plus_one(*batch);
  EXPECT_EQ(result.to_vector<float>(), Values(180, 1));
  EXPECT_EQ(second.to_vector<float>(), Values(180, 2));
}

TEST(PrefetchOnGpus, ACopyThatFailsIsAnErrorOfItsBatch) {
  for (const char* call : {"cudaMemcpyAsync", "cudaMallocFromPoolAsync"}) {
    BatchSource<Tensor> source(4, [call](std::int64_t i) {
      const Tensor batch = full({30}, double(i));
      if (i == 2) cudasim::fail_next(call, cudaErrorInvalidValue);
      return batch;
    });
    auto range = prefetch(source, "cuda:0", {.depth = 1});
    auto batch = range.begin();
    ++batch;
    EXPECT_TRUE(throws<CudaError>([&] { ++batch; }, call)) << call;
    EXPECT_TRUE(batch == range.end());
    cudasim::mend();
  }
}

// What the taker's stream has still to make may be what the loader gives.
TEST(PrefetchOnGpus, APassBeginsAfterWhatTheTakersStreamsHold) {
  testing::under_many_schedules([] {
    const std::vector<Tensor> batches{plus_one(full({8}, 1, {.device = "cuda:0"}))};
    for (const auto& parts : prefetch(batches, gpus(2))) {
      EXPECT_EQ(plus_one(parts[0]).to_vector<float>(), Values(4, 3));
      EXPECT_EQ(plus_one(parts[1]).to_vector<float>(), Values(4, 3));
    }
  });
}

TEST(PrefetchOnGpus, ElementsMayGoWholeToOtherDevices) {
  testing::under_many_schedules([] {
    BatchSource<std::tuple<Tensor, Tensor>> source(
        5, [](std::int64_t i) { return std::tuple(full({8}, double(i)), full({8}, double(-i))); });
    float number = 0;
    for (auto [images, labels] : prefetch(source, gpus(2), data::whole<1>("cuda:2"))) {
      EXPECT_EQ(images[1].to_vector<float>(), Values(4, number));
      EXPECT_EQ(labels.device(), Device("cuda:2"));
      EXPECT_EQ(plus_one(labels).to_vector<float>(), Values(8, 1 - number++));
    }
    EXPECT_EQ(number, 5);
  });
}

}  // namespace prefetch_test
}  // namespace lockstep
