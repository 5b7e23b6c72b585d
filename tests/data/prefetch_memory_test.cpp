// SPDX-License-Identifier: Apache-2.0
#include <lockstep/data/dataloader.hpp>
#include <lockstep/data/prefetch.hpp>

#include <lockstep/backend/streams.hpp>
#include <lockstep/parallel/scatter_gather.hpp>
#include <lockstep/tensor/creation.hpp>

#include "data/batch_source.hpp"
#include "support/devices.hpp"
#include "support/operator_new.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

// What prefetch allocates.
namespace lockstep::data {
namespace prefetch_memory_test {

using testing::BatchSource;
using testing::first_devices;

std::uint64_t fresh_allocations(const std::vector<Device>& devices) {
  std::uint64_t fresh = memory_stats(Device()).fresh_allocations;
  for (const Device device : devices) fresh += memory_stats(device).fresh_allocations;
  return fresh;
}

// However far it may go ahead, a pass takes memory for no more batches than there are.
TEST(PrefetchMemory, NoMoreIsReservedThanTheLoaderHas) {
  constexpr std::int64_t kBytes = 100 * 4096 * 4;
  const TensorDataset samples{zeros({10 * 100, 4096})};
  const std::vector<Device> devices = first_devices(1);
  using Counts = std::pair<std::int64_t, std::int64_t>;
  for (const auto& [workers, ahead] : {Counts(0, 1'000'000), Counts(3, 1'000'000), Counts(3, 30)}) {
    empty_cache(Device());
    empty_cache(devices[0]);
    const std::size_t host = memory_stats(Device()).reserved_bytes;
    const std::size_t device = memory_stats(devices[0]).reserved_bytes;
    DataLoader loader{samples,
                      {.batch_size = 100, .num_workers = workers, .prefetch_factor = ahead}};
    for (const auto& batch : prefetch(loader, devices, {.depth = 1'000'000'000'000})) (void)batch;
    EXPECT_LE(memory_stats(Device()).reserved_bytes - host, 40 * kBytes);
    EXPECT_LE(memory_stats(devices[0]).reserved_bytes - device, 40 * kBytes);
  }
}

// Loader, prefetch, scatter and gather: what the first three batches did not need, whatever the
// threads did meanwhile, no later one needs.
TEST(PrefetchMemory, SteadyStateTakesNoNewStorage) {
  constexpr std::int64_t kRows = 24;
  constexpr std::int64_t kBatches = 60;
  const TensorDataset samples{zeros({kRows * kBatches, 700}), arange(kRows * kBatches)};
  for (const std::size_t count : {1U, 2U, 3U}) {
    const std::vector<Device> devices = first_devices(count);
    for (const std::int64_t workers : {0, 1, 2, 4, 7}) {
      for (const std::int64_t depth : {1, 2, 4}) {
        empty_cache(Device());
        for (const Device device : devices) empty_cache(device);
        DataLoader loader{samples, {.batch_size = kRows, .num_workers = workers}};
        std::int64_t step = 0;
        std::uint64_t fresh = 0;
        std::uint64_t before = 0;
        for (auto [images, labels] : prefetch(loader, devices, {.depth = depth})) {
          if (count > 1) {
            EXPECT_EQ(gather(images, devices[0]).const_data_ptr<float>()[0], 0);
            const Tensor together = gather(labels, devices[0]);
            EXPECT_EQ(together.const_data_ptr<std::int64_t>()[kRows - 1], (step + 1) * kRows - 1);
          }
          if (++step == 3) {
            fresh = fresh_allocations(devices);
            before = testing::operator_new_calls();
          }
        }
        EXPECT_EQ(step, kBatches);
        EXPECT_EQ(fresh_allocations(devices), fresh)
            << count << " devices, " << workers << " workers, depth " << depth;
        if (depth != 2) continue;
        const double each =
            static_cast<double>(testing::operator_new_calls() - before) / (kBatches - 3);
        std::printf("%zu devices, %d workers: %.1f operator new a step\n", count,
                    static_cast<int>(workers), each);
      }
    }
  }
}

// The batches behind the one in use have memory each from the second batch on. On the host there is
// memory for one that is loaded, one that is copied, and one whose copy has just ended.
TEST(PrefetchMemory, RoomForTheWholeDepthIsMadeAtOnce) {
  constexpr std::int64_t kDepth = 3;
  const std::vector<Device> devices = first_devices(2);
  empty_cache(Device());
  for (const Device device : devices) empty_cache(device);
  const std::uint64_t before_host = memory_stats(Device()).fresh_allocations;
  std::vector<std::uint64_t> before;
  for (const Device device : devices) before.push_back(memory_stats(device).fresh_allocations);
  BatchSource<Tensor> source(20, [](std::int64_t) { return zeros({40, 100}); });
  auto range = prefetch(source, devices, {.depth = kDepth});
  auto batch = range.begin();
  ++batch;
  source.wait_for_loaded(3);
  EXPECT_EQ(memory_stats(Device()).fresh_allocations, before_host + 3);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    EXPECT_EQ(memory_stats(devices[i]).fresh_allocations, before[i] + 1 + kDepth);
  }
  for (; batch != range.end(); ++batch) {
    EXPECT_EQ(memory_stats(Device()).fresh_allocations, before_host + 3);
    for (std::size_t i = 0; i < devices.size(); ++i) {
      EXPECT_EQ(memory_stats(devices[i]).fresh_allocations, before[i] + 1 + kDepth);
    }
  }
}

// A tensor of the loader's that is on the device is not copied, and nothing is made like the whole
// of which it is a part.
TEST(PrefetchMemory, NoRoomIsMadeForViews) {
  const Device device("cpu:0");
  const Tensor all = zeros({100, 10}, {.device = device});
  const std::uint64_t before = memory_stats(device).allocations;
  BatchSource<Tensor> source(
      10, [&](std::int64_t i) { return lockstep::data::detail::row_of(all, i); });
  for (const Tensor& row : prefetch(source, device)) {
    EXPECT_EQ(row.impl()->storage, all.impl()->storage);
  }
  EXPECT_EQ(memory_stats(device).allocations, before);
}

// The one in use, and `depth` behind it: no thread keeps any other.
TEST(PrefetchMemory, NoMoreBatchesAreAliveThanDepthAndOne) {
  struct Counted {
    Tensor data;
    std::shared_ptr<int> life;  // shared by the batch in all its places
  };
  for (const std::int64_t depth : {1, 2, 3, 4}) {
    std::atomic<std::int64_t> alive{0};
    std::atomic<std::int64_t> most{0};
    BatchSource<Counted> source(30, [&](std::int64_t) {
      most = std::max(most.load(), ++alive);
      return Counted{zeros({10, 1 << 12}), {new int(0), [&alive](int* life) {
                                              delete life;
                                              --alive;
                                            }}};
    });
    std::int64_t taken = 0;
    for (const auto& parts : prefetch(source, first_devices(2), {.depth = depth})) {
      EXPECT_EQ(parts.size(), 2U);
      source.wait_for_loaded(std::min<std::int64_t>(++taken + depth, 30));
    }
    EXPECT_EQ(most, depth + 1);
    EXPECT_EQ(alive, 0);
  }
}

}  // namespace prefetch_memory_test
}  // namespace lockstep::data
