// SPDX-License-Identifier: Apache-2.0
#include <lockstep/data/dataloader.hpp>
#include <lockstep/data/prefetch.hpp>

#include <lockstep/backend/launch.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include "data/batch_source.hpp"
#include "support/devices.hpp"
#include "support/expect_error.hpp"
#include "support/gate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

// When prefetch loads, copies, waits and ends. Gates hold what is not to have happened yet.
namespace lockstep::data {
namespace prefetch_order_test {

using testing::BatchSource;
using testing::first_devices;
using testing::Gate;
using testing::QueuedCompute;
using testing::throws;
using Values = std::vector<float>;

const Device kDevice("cpu:0");

// Large enough that no copy of it runs in its issuer.
constexpr std::int64_t kRows = std::int64_t{1} << 15;

Values values_of(const Tensor& tensor) { return tensor.to(Device()).to_vector<float>(); }

BatchSource<Tensor> numbered(std::int64_t count) {
  return {count, [](std::int64_t i) { return full({kRows}, double(i)); }};
}

struct CopyElements {
  View<const float> in;
  View<float> out;
  void operator()(std::size_t i) const { out[i] = in[i]; }
};

// Work on the device's compute stream that reads `tensor` into the result.
Tensor read_by_kernel(const Tensor& tensor) {
  const Stream stream = current_stream(tensor.device());
  Tensor out = empty(tensor.sizes(), tensor.options());
  launch(stream, static_cast<std::size_t>(tensor.numel()),
         CopyElements{lockstep::detail::input<float>(tensor),
                      lockstep::detail::output<float>(out, stream)});
  return out;
}

// Whether `happened` becomes true before a time that only a broken program needs.
template <class Happened>
bool comes_true(const Happened& happened) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!happened()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(PrefetchOrder, TheNextBatchIsCopiedBesideTheComputeOfTheOneInUse) {
  const QueuedCompute queued;
  auto source = numbered(4);
  Tensor result;
  Gate compute;
  auto range = prefetch(source, kDevice);
  auto batch = range.begin();
  compute.hold(default_stream(kDevice));
  result = read_by_kernel(*batch);

  // Of a depth of 2, the third batch is loaded when the second one's copy has been issued.
  source.wait_for_loaded(3);
  EXPECT_TRUE(comes_true([] { return copy_stream(kDevice).query(); }));
  ++batch;
  const Event copied = copy_stream(kDevice).record_event();
  EXPECT_FALSE(compute.is_open());
  EXPECT_FALSE(default_stream(kDevice).query());
  EXPECT_TRUE(comes_true([&] { return copied.query(); }));

  compute.open();
  EXPECT_EQ(values_of(result), Values(kRows, 0));
  EXPECT_EQ(values_of(*batch), Values(kRows, 1));
}

TEST(PrefetchOrder, TheTakerIsNotBlockedByTheCopyButItsStreamIs) {
  auto source = numbered(2);
  Gate copy;
  copy.hold(copy_stream(kDevice));
  auto range = prefetch(source, kDevice);
  auto batch = range.begin();
  EXPECT_FALSE(default_stream(kDevice).query()) << "the compute stream waits for nothing";
  EXPECT_FALSE(copy.is_open());
  copy.open();
  EXPECT_EQ(values_of(*batch), Values(kRows, 0));
}

TEST(PrefetchOrder, ComputeDoesNotWaitForTheCopiesOfLaterBatches) {
  std::atomic<bool> held{false};
  BatchSource<Tensor> source(4, [&](std::int64_t i) {
    if (i == 1) held.wait(false);
    return full({kRows}, double(i));
  });
  Gate copy;
  auto range = prefetch(source, kDevice);
  auto batch = range.begin();
  EXPECT_TRUE(comes_true([] { return copy_stream(kDevice).query(); }));
  copy.hold(copy_stream(kDevice));
  held = true;
  held.notify_all();
  source.wait_for_loaded(3);  // the copy of batch 1 has been issued
  EXPECT_TRUE(default_stream(kDevice).query());
  EXPECT_FALSE(copy.is_open());
  copy.open();
  EXPECT_EQ(values_of(*batch), Values(kRows, 0));
}

TEST(PrefetchOrder, EachDevicesStreamWaitsForItsOwnPart) {
  auto source = numbered(1);
  Gate second;
  second.hold(copy_stream("cpu:1"));
  auto range = prefetch(source, first_devices(2));
  auto batch = range.begin();
  EXPECT_EQ(values_of((*batch)[0]), Values(kRows / 2, 0));
  EXPECT_FALSE(default_stream("cpu:1").query());
  second.open();
  EXPECT_EQ(values_of((*batch)[1]), Values(kRows / 2, 0));
}

// What comes after the batch is kept, so that no memory is free but the batch's: batch 3 takes that
// at the latest, as its copy is issued when that of batch 2 has ended, and with it all that the
// copy stream held when batch 0 was given up.
TEST(PrefetchOrder, TheMemoryOfABatchIsNotReusedWhileItIsRead) {
  const QueuedCompute queued;
  auto source = numbered(5);
  Tensor result;
  std::vector<Tensor> later;
  Gate compute;
  auto range = prefetch(source, kDevice, {.depth = 1});
  auto batch = range.begin();
  compute.hold(default_stream(kDevice));
  result = read_by_kernel(*batch);
  // Nobody but the stream has batch 0 from here on.
  for (++batch; batch != range.end(); ++batch) later.push_back(*batch);
  EXPECT_TRUE(comes_true([] { return copy_stream(kDevice).query(); }));
  compute.open();
  EXPECT_EQ(values_of(result), Values(kRows, 0));
  ASSERT_EQ(later.size(), 4U);
  for (std::size_t i = 0; i < later.size(); ++i) {
    EXPECT_EQ(values_of(later[i]), Values(kRows, static_cast<float>(i + 1)));
  }
}

// What the taker's stream makes before the pass may be what the loader gives.
TEST(PrefetchOrder, APassBeginsAfterWhatTheTakersStreamsHold) {
  const QueuedCompute queued;
  const Tensor made = zeros({2000}, {.device = kDevice});
  default_stream(kDevice).synchronize();
  Gate compute;
  compute.hold(default_stream(kDevice));
  made.fill_(7);
  const std::vector<Tensor> batches{made};
  auto range = prefetch(batches, first_devices(2));
  auto batch = range.begin();
  compute.open();
  EXPECT_EQ(values_of((*batch)[1]), Values(1000, 7));
}

TEST(PrefetchOrder, WhatTheLoaderMakesOnADeviceDoesNotWaitForCompute) {
  const QueuedCompute queued;
  BatchSource<Tensor> source(3, [](std::int64_t i) {
    const Tensor made = full({kRows}, double(i), {.device = kDevice});
    current_stream(kDevice).synchronize();
    return made;
  });
  Gate compute;
  auto range = prefetch(source, kDevice);
  auto batch = range.begin();
  compute.hold(default_stream(kDevice));
  source.wait_for_loaded(3);
  EXPECT_FALSE(compute.is_open());
  compute.open();
  ++batch;
  EXPECT_EQ(values_of(*batch), Values(kRows, 1));
}

// The batch in use, and `depth` behind it: the one that is being loaded is among these.
TEST(PrefetchOrder, LoadsAtMostDepthAhead) {
  for (const std::int64_t depth : {1, 2, 3, 4}) {
    std::atomic<std::int64_t> asked_for{1};
    std::atomic<bool> too_far{false};
    BatchSource<Tensor> source(24, [&](std::int64_t i) {
      if (i + 1 > asked_for + depth) too_far = true;
      return full({16}, double(i));
    });
    std::int64_t taken = 0;
    asked_for = 1;
    auto range = prefetch(source, first_devices(2), {.depth = depth});
    for (auto batch = range.begin(); batch != range.end(); ++batch) {
      ++taken;
      source.wait_for_loaded(std::min<std::int64_t>(taken + depth, 24));
      EXPECT_LE(source.begun(), taken + depth);
      ++asked_for;
    }
    EXPECT_EQ(taken, 24);
    EXPECT_FALSE(too_far) << depth;
  }
}

// The types and texts of exceptions are the loader's own.
struct BrokenSample : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST(PrefetchOrder, AnExceptionOfTheLoaderComesWithItsBatch) {
  for (const std::int64_t depth : {1, 2, 3, 4}) {
    for (std::int64_t broken = 0; broken < 5; ++broken) {
      BatchSource<Tensor> source(5, [broken](std::int64_t i) {
        if (i == broken) throw BrokenSample("sample of batch " + std::to_string(i));
        return full({8}, double(i));
      });
      std::int64_t taken = 0;
      auto range = prefetch(source, first_devices(2), {.depth = depth});
      EXPECT_TRUE(throws<BrokenSample>(
          [&] {
            for (auto batch = range.begin(); batch != range.end(); ++batch) {
              EXPECT_EQ(values_of((*batch)[0]), Values(4, float(taken++)));
            }
          },
          "sample of batch " + std::to_string(broken)));
      EXPECT_EQ(taken, broken);
    }
  }
}

TEST(PrefetchOrder, AfterAnExceptionThePassIsOverAndTheNextOneBegins) {
  bool broken = true;
  BatchSource<Tensor> source(3, [&broken](std::int64_t i) {
    if (broken && i == 1) throw BrokenSample("once");
    return full({8}, double(i));
  });
  auto range = prefetch(source, kDevice);
  auto batch = range.begin();
  EXPECT_THROW(++batch, BrokenSample);
  EXPECT_TRUE(batch == range.end());
  ++batch;
  EXPECT_TRUE(batch == range.end());
  broken = false;
  std::int64_t taken = 0;
  for (const Tensor& each : range) EXPECT_EQ(values_of(each), Values(8, float(taken++)));
  EXPECT_EQ(taken, 3);
}

TEST(PrefetchOrder, ABatchThatCannotBeDividedIsAnErrorAtItsPlace) {
  using Pair = std::tuple<Tensor, Tensor>;
  const std::vector<Pair> batches{Pair(zeros({4}), zeros({4})), Pair(zeros({4}), zeros({3})),
                                  Pair(zeros({4}), zeros({4}))};
  auto range = prefetch(batches, first_devices(2));
  auto batch = range.begin();
  EXPECT_TRUE(batch != range.end());
  EXPECT_TRUE(throws<ValueError>([&] { ++batch; }, "batch[0] has 4 rows", "batch[1] has 3"));
  EXPECT_TRUE(batch == range.end());
}

TEST(PrefetchOrder, TheErrorsOfWorkersAndTransformsComeThrough) {
  struct Broken {
    std::int64_t size() const { return 20; }
    std::int64_t get(std::int64_t i) const {
      if (i == 9) throw BrokenSample("sample 9");
      return i;
    }
  };
  for (const std::int64_t workers : {0, 1, 2, 4, 7}) {
    DataLoader loader{Broken(), {.batch_size = 2, .num_workers = workers}};
    int taken = 0;
    EXPECT_TRUE(throws<BrokenSample>(
        [&] {
          for (const Tensor& batch : prefetch(loader, kDevice)) {
            EXPECT_EQ(batch.to(Device()).to_vector<std::int64_t>()[0], 2 * taken++);
          }
        },
        "sample 9"));
    EXPECT_EQ(taken, 4);
  }
}

TEST(PrefetchOrder, LeavingTheLoopEndsTheThread) {
  for (const std::int64_t depth : {1, 2, 3, 4}) {
    for (std::int64_t last = 0; last < 4; ++last) {
      auto source = numbered(10);
      std::int64_t number = 0;
      for (const auto& parts : prefetch(source, first_devices(3), {.depth = depth})) {
        EXPECT_EQ(parts.size(), 3U);
        if (number++ == last) break;
      }
      EXPECT_EQ(source.begun(), source.loaded());
      EXPECT_LE(source.loaded(), last + 1 + depth);
    }
  }
}

TEST(PrefetchOrder, AnExceptionInTheLoopEndsTheThread) {
  for (const std::int64_t workers : {0, 1, 2, 4, 7}) {
    DataLoader loader{TensorDataset{zeros({30, 4})}, {.batch_size = 2, .num_workers = workers}};
    int taken = 0;
    const auto loop = [&] {
      for (auto [batch] : prefetch(loader, first_devices(2))) {
        if (++taken == 3) throw std::logic_error("in the loop");
      }
    };
    EXPECT_TRUE(throws<std::logic_error>(loop, "in the loop"));
    EXPECT_EQ(taken, 3);
  }
}

TEST(PrefetchOrder, TheStepAfterTheLastBatchEndsTheThread) {
  struct Presence {
    std::atomic<int>* ended = nullptr;
    ~Presence() {
      if (ended != nullptr) ended->fetch_add(1);
    }
  };
  std::atomic<int> ended{0};
  BatchSource<Tensor> source(3, [&ended](std::int64_t i) {
    thread_local Presence presence;
    presence.ended = &ended;
    return full({6}, static_cast<double>(i));
  });
  auto range = prefetch(source, first_devices(2));
  auto batch = range.begin();
  while (batch != range.end()) ++batch;
  EXPECT_EQ(ended.load(), 1);
}

TEST(PrefetchOrder, TheEndWaitsForTheBatchThatIsBeingLoaded) {
  std::atomic<bool> loading{false};
  std::atomic<bool> go_on{false};
  BatchSource<Tensor> source(9, [&](std::int64_t i) {
    if (i == 1) {
      loading = true;
      loading.notify_all();
      go_on.wait(false);
    }
    return full({8}, double(i));
  });
  const std::jthread opener([&] {
    loading.wait(false);
    go_on = true;
    go_on.notify_all();
  });
  {
    auto range = prefetch(source, kDevice, {.depth = 4});
    const auto batch = range.begin();
    EXPECT_EQ(values_of(*batch), Values(8, 0));
    loading.wait(false);
  }
  EXPECT_EQ(source.begun(), source.loaded());
}

TEST(PrefetchOrder, BatchesInFlightMayBeAbandoned) {
  auto source = numbered(6);
  Gate copy;
  copy.hold(copy_stream(kDevice));
  const std::jthread opener([&] {
    source.wait_for_loaded(2);
    copy.open();
  });
  auto range = prefetch(source, kDevice, {.depth = 3});
  { const auto batch = range.begin(); }
  { const auto batch = range.begin(); }
  float number = 0;
  for (const Tensor& batch : range) EXPECT_EQ(values_of(batch), Values(kRows, number++));
}

TEST(PrefetchOrder, APassMayBeHandedOn) {
  auto source = numbered(3);
  auto range = prefetch(source, kDevice);
  auto first = range.begin();
  auto batch = std::move(first);
  ++batch;
  EXPECT_EQ(values_of(*batch), Values(kRows, 1));
  ++batch;
  ++batch;
  EXPECT_TRUE(batch == range.end());
}

}  // namespace prefetch_order_test
}  // namespace lockstep::data
