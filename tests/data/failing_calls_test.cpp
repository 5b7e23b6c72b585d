// SPDX-License-Identifier: Apache-2.0
#include <lockstep/data/csv.hpp>
#include <lockstep/data/dataloader.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/data/idx.hpp>
#include <lockstep/data/npy.hpp>
#include <lockstep/data/prefetch.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include "data/files.hpp"
#include "support/define_failing_calls.hpp"
#include "support/devices.hpp"
#include "support/failing_calls_walk.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace lockstep {
namespace failing_calls_test {

using testing::CallKind;
using testing::fails_with;
using testing::first_devices;
using testing::idx_header;
using testing::Place;
using testing::TempDirectory;
using testing::walk_calls;
using testing::write_file;
using testing::write_gzip;

TEST(FailingCalls, PrefetchOfALoaderWithWorkers) {
  LOCKSTEP_NEEDS_FAILING_CALLS();
  const data::TensorDataset numbers{arange(24).to(Dtype::f32)};
  const std::vector<Device> devices = first_devices(2);
  walk_calls("prefetch", [&](Place place) {
    data::DataLoader loader{numbers, {.batch_size = 4, .num_workers = 2}};
    float sum = 0;
    const auto pass = [&] {
      sum = 0;
      for (const auto& [batch] : data::prefetch(loader, devices)) {
        for (const Tensor& part : batch.parts()) sum += part.sum().item<float>();
      }
    };
    if (fails_with<Error>(CallKind::thread, place, "Resource temporarily", pass)) pass();
    EXPECT_EQ(sum, 276);
  });
}

// The pass is called with a path and reads or writes the file there.
void walk_a_file(const std::string& operation, const std::string& path,
                 const std::function<float()>& pass, float expected) {
  walk_calls(operation, [&](Place place) {
    float found = 0;
    const auto read = [&] { found = pass(); };
    if (fails_with<DataError>(CallKind::file, place, path, read)) read();
    EXPECT_EQ(found, expected);
  });
}

TEST(FailingCalls, ReadingFiles) {
  LOCKSTEP_NEEDS_FAILING_CALLS();
  const TempDirectory folder;
  const std::string bytes = idx_header('\x08', {3}) + std::string{'\1', '\2', '\3'};
  const std::string idx = (folder / "numbers-idx1-ubyte").string();
  write_file(idx, bytes);
  const auto sum_of = [](const Tensor& tensor) {
    return tensor.to(Dtype::f32).sum().item<float>();
  };
  walk_a_file(
      "read_idx", idx, [&] { return sum_of(data::read_idx(idx)); }, 6);
  write_gzip(idx + ".gz", bytes);
  walk_a_file(
      "read_idx, gzip", idx + ".gz", [&] { return sum_of(data::read_idx(idx + ".gz")); }, 6);
  const std::string csv = (folder / "numbers.csv").string();
  write_file(csv, "a,b\n1,2\n3,4\n");
  walk_a_file(
      "read_csv", csv, [&] { return sum_of(data::read_csv(csv, {.header = true}).columns()); }, 10);
  const std::string npy = (folder / "numbers.npy").string();
  walk_a_file(
      "write_npy, read_npy", npy,
      [&] {
        data::write_npy(npy, arange(5));
        return sum_of(data::read_npy(npy));
      },
      10);
}

}  // namespace failing_calls_test
}  // namespace lockstep
