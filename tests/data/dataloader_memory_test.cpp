// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/memory_stats.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/data/dataloader.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/creation.hpp>

#include "support/count_operator_new.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <new>
#include <span>

namespace dataloader_memory_test {

using lockstep::Device;
using lockstep::Tensor;
using lockstep::data::DataLoader;
using lockstep::data::TensorDataset;

// The rows of two tensors; batches from `held` on are loaded once `let_go` says so.
struct HeldBack {
  TensorDataset<2> rows;
  std::int64_t held;
  std::atomic<bool>& let_go;
  std::atomic<std::int64_t>& loaded;

  std::int64_t size() const { return rows.size(); }
  std::array<Tensor, 2> get_batch(std::span<const std::int64_t> indices) const {
    if (indices[0] >= held) let_go.wait(false);
    auto batch = rows.get_batch(indices);
    loaded.fetch_add(1);
    loaded.notify_all();
    return batch;
  }
};

// The first three batches are taken while nothing is loaded beyond them; then as much is loaded as
// may be. What that needs was there before.
TEST(DataLoaderMemory, SteadyStateTakesNoNewStorage) {
  constexpr std::int64_t kBatch = 16;
  constexpr std::int64_t kBatches = 60;
  const TensorDataset rows{lockstep::zeros({kBatch * kBatches, 1000}),
                           lockstep::arange(kBatch * kBatches)};
  for (const std::int64_t workers : {0, 1, 2, 4, 7}) {
    lockstep::empty_cache(Device());
    std::atomic<bool> let_go{workers == 0};
    std::atomic<std::int64_t> loaded{0};
    DataLoader loader{HeldBack{rows, 3 * kBatch, let_go, loaded},
                      {.batch_size = kBatch, .shuffle = false, .num_workers = workers}};
    std::uint64_t fresh = 0;
    std::uint64_t before = 0;
    std::int64_t step = 0;
    for (auto [left, right] : loader) {
      ++step;
      if (step == 3) {
        fresh = lockstep::memory_stats(Device()).fresh_allocations;
        before = lockstep::testing::operator_new_calls();
        let_go = true;
        let_go.notify_all();
        const std::int64_t all = workers == 0 ? 3 : 3 + 2 * workers;
        for (auto now = loaded.load(); now < all; now = loaded.load()) loaded.wait(now);
      }
    }
    EXPECT_EQ(step, kBatches);
    EXPECT_EQ(lockstep::memory_stats(Device()).fresh_allocations, fresh) << workers << " workers";
    const double each =
        static_cast<double>(lockstep::testing::operator_new_calls() - before) / (kBatches - 3);
    std::printf("%ld workers: %.1f operator new a step\n", static_cast<long>(workers), each);
    EXPECT_LT(each, 50);
  }
}

// A worker needs memory before it loads, here for the stream that goes along with it.
TEST(DataLoaderMemory, AnAllocationOfAWorkerThatFailsIsTheLoopsError) {
  const TensorDataset rows{lockstep::arange(12)};
  const lockstep::StreamGuard guard(lockstep::copy_stream("cpu:1"));
  for (const bool lasting : {false, true}) {
    bool failed = true;
    std::uint64_t n = 1;
    for (; failed; ++n) {
      DataLoader loader{rows, {.batch_size = 2, .num_workers = 2}};
      const auto sum_of_pass = [&loader] {
        std::int64_t sum = 0;
        for (const auto& [batch] : loader) {
          for (std::int64_t i = 0; i < 2; ++i)
            sum += batch.template const_data_ptr<std::int64_t>()[i];
        }
        return sum;
      };
      bool thrown = false;
      std::int64_t sum = 66;
      {
        const lockstep::testing::OutOfMemory scarce(n, lasting);
        try {
          sum = sum_of_pass();
        } catch (const std::bad_alloc&) {
          thrown = true;
        } catch (const lockstep::Error&) {
          thrown = true;
        }
      }
      failed = lockstep::testing::OutOfMemory::has_struck();
      ASSERT_TRUE(failed || !thrown);
      ASSERT_EQ(sum, 66) << "allocation " << n;
      ASSERT_EQ(sum_of_pass(), 66) << "after a failure of allocation " << n;
    }
    EXPECT_GT(n, 2U);
  }
}

}  // namespace dataloader_memory_test
