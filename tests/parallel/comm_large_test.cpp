// SPDX-License-Identifier: Apache-2.0
//
// The collectives on tensors so large that several threads copy, or add, parts of one.
#include <lockstep/backend/streams.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/comm.hpp>
#include <lockstep/parallel/comm/detail/transfer.hpp>
#include <lockstep/tensor/creation.hpp>

#include "support/devices.hpp"
#include "support/gate.hpp"
#include "support/varied.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ls = lockstep;
namespace comm = lockstep::comm;
using ls::testing::first_devices;
using ls::testing::Gate;
using ls::testing::QueuedCompute;
using ls::testing::varied;

namespace comm_large_test {

constexpr std::int64_t kRows = 803;
constexpr std::int64_t kColumns = 701;  // 2.1 MiB of f32

TEST(CommLarge, GatherUndoesScatterAlongEitherDimension) {
  for (const ls::Device home : {ls::Device(), ls::Device("cpu:1")}) {
    const ls::Tensor x = varied<float>({kRows, kColumns}, 1, home);
    for (const std::int64_t dim : {0, 1}) {
      const auto chunks = comm::scatter(x, first_devices(3), {}, dim);
      for (const ls::Device destination : {ls::Device(), ls::Device("cpu:2")}) {
        const auto before = comm::detail::copies_issued().load();
        const ls::Tensor whole = comm::gather(chunks, dim, destination);
        EXPECT_EQ(comm::detail::copies_issued().load() - before, 3U);
        EXPECT_EQ(whole.device(), destination);
        EXPECT_EQ(whole.to_vector<float>(), x.to_vector<float>());
      }
    }
  }
}

// What is copied from is a packed copy of each input, and must be there until all are issued.
TEST(CommLarge, GatherTakesStridedInputs) {
  std::vector<ls::Tensor> inputs;
  std::vector<float> expected;
  for (const char* const device : {"cpu:0", "cpu:0", "cpu:1", "cpu:1"}) {
    inputs.push_back(varied<float>({300, 200}, inputs.size(), device).transpose(0, 1));
    const std::vector<float> values = inputs.back().to_vector<float>();
    expected.insert(expected.end(), values.begin(), values.end());
  }
  for (const ls::Device destination : {ls::Device(), ls::Device("cpu:1")}) {
    EXPECT_EQ(comm::gather(inputs, 0, destination).to_vector<float>(), expected);
  }
}

// That much is not handed to another thread while the copy streams of host devices are idle.
TEST(CommLarge, HostDevicesHaveTheirMegabyteWhenTheCallReturns) {
  const ls::Tensor x = varied<float>({512, 512}, 3, ls::Device());
  const std::vector<ls::Device> devices{ls::host_devices()[0], ls::host_devices()[1]};
  for (const ls::Device device : devices) ls::synchronize(device);
  const auto chunks = comm::scatter(x, devices);
  const auto copies = comm::broadcast(x, devices);
  for (const ls::Device device : devices) EXPECT_TRUE(ls::copy_stream(device).query());
  EXPECT_EQ(comm::gather(chunks, 0, devices[1]).to_vector<float>(), copies[0].to_vector<float>());
}

TEST(CommLarge, BroadcastGivesEveryDeviceAllOfIt) {
  const ls::Tensor x = varied<float>({kRows, kColumns}, 2, "cpu");
  for (const ls::Tensor& copy : comm::broadcast(x, first_devices(3))) {
    EXPECT_EQ(copy.to_vector<float>(), x.to_vector<float>());
  }
}

// Each element by itself, from the first input to the last.
TEST(CommLarge, EveryElementIsSummedInTheOrderGiven) {
  std::vector<ls::Tensor> parts;
  std::vector<float> expected;
  for (const ls::Device device :
       {ls::Device("cpu:0"), ls::Device("cpu:1"), ls::Device(), ls::Device("cpu:2")}) {
    parts.push_back(varied<float>({kRows, kColumns}, parts.size(), device));
    const std::vector<float> values = parts.back().to_vector<float>();
    if (expected.empty()) expected.assign(values.size(), -0.0F);
    for (std::size_t i = 0; i < values.size(); ++i) expected[i] += values[i];
  }
  for (const ls::Device destination : {ls::Device("cpu:1"), ls::Device()}) {
    const ls::Tensor sum = comm::reduce_add(parts, destination);
    EXPECT_EQ(sum.device(), destination);
    EXPECT_EQ(sum.to_vector<float>(), expected);
  }
}

TEST(CommLarge, NothingIsCopiedOrAddedBeforeItsTurn) {
  const ls::Tensor x = varied<float>({kRows, kColumns}, 3, "cpu");
  const QueuedCompute queued;
  Gate copies;
  Gate compute;
  copies.hold(ls::copy_stream("cpu:1"));
  compute.hold(ls::current_stream("cpu:2"));
  const auto chunks = comm::scatter(x, first_devices(2));
  const auto all = comm::broadcast(x, {"cpu:1", "cpu:2"});
  const ls::Tensor sum = comm::reduce_add(all, "cpu:2");
  EXPECT_FALSE(ls::current_stream("cpu:1").query());
  EXPECT_FALSE(ls::current_stream("cpu:2").query());
  EXPECT_EQ(chunks[0].to_vector<float>(), x.narrow(0, 0, (kRows + 1) / 2).to_vector<float>());
  compute.open();
  EXPECT_FALSE(ls::current_stream("cpu:2").query());  // the sum waits for the copy on cpu:1
  copies.open();
  const std::vector<float> values = x.to_vector<float>();
  const std::vector<float> doubled = sum.to_vector<float>();
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(doubled[i], values[i] + values[i]);
}

}  // namespace comm_large_test
