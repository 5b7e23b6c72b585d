// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/streams.hpp>
#include <lockstep/data/dataloader.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/data/prefetch.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include "support/devices.hpp"
#include "support/out_of_memory_walk.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep {
namespace out_of_memory_walk_test {

using testing::fails_at;
using testing::first_devices;
using testing::Place;
using testing::walk;

TEST(OutOfMemoryWalk, PrefetchOfALoaderWithWorkers) {
  const data::TensorDataset numbers{arange(24).to(Dtype::f32)};
  const StreamGuard guard(copy_stream("cpu:2"));
  const std::vector<Device> devices = first_devices(2);
  walk("prefetch", [&](Place place) {
    data::DataLoader loader{numbers, {.batch_size = 4, .num_workers = 2}};
    const auto sum_of_pass = [&] {
      float sum = 0;
      for (const auto& [batch] : data::prefetch(loader, devices)) {
        for (const Tensor& part : batch.parts()) sum += part.sum().item<float>();
      }
      return sum;
    };
    float sum = 0;
    if (fails_at(place, [&] { sum = sum_of_pass(); })) sum = sum_of_pass();
    EXPECT_EQ(sum, 276);
  });
}

}  // namespace out_of_memory_walk_test
}  // namespace lockstep
