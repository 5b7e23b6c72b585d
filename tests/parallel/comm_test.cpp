// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/comm.hpp>
#include <lockstep/tensor/creation.hpp>

#include "support/devices.hpp"
#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace ls = lockstep;
namespace comm = lockstep::comm;
using ls::testing::first_devices;
using ls::testing::throws;

namespace comm_test {

ls::Tensor numbers(std::int64_t count, ls::Dtype dtype, ls::Device device = "cpu:0") {
  return ls::arange(count, {.dtype = ls::Dtype::i64}).to(dtype).to(device);
}

TEST(Comm, M01BroadcastKeepsTheOriginalAndCopiesToTheOthers) {
  const ls::Tensor x = numbers(25, ls::Dtype::f32);
  const auto copies = comm::broadcast(x, first_devices(2));
  EXPECT_TRUE(copies[0].is_same(x));
  EXPECT_EQ(copies[1].device(), ls::Device("cpu:1"));
  EXPECT_EQ(copies[1].to_vector<float>(), x.to_vector<float>());
}

TEST(Comm, M03BroadcastCoalescedEqualsOneByOne) {
  const std::vector<ls::Tensor> tensors = {numbers(5, ls::Dtype::i64), numbers(10, ls::Dtype::f64),
                                           numbers(5, ls::Dtype::i64), numbers(10, ls::Dtype::i64),
                                           numbers(5, ls::Dtype::i32), numbers(5, ls::Dtype::f64)};
  const auto copies = comm::broadcast_coalesced(tensors, first_devices(2), 100);
  for (std::size_t j = 0; j < tensors.size(); ++j) {
    EXPECT_TRUE(copies[0][j].is_same(tensors[j]));
    EXPECT_EQ(copies[1][j].dtype(), tensors[j].dtype());
    EXPECT_EQ(copies[1][j].to(ls::Dtype::f64).to_vector<double>(),
              tensors[j].to(ls::Dtype::f64).to_vector<double>());
  }
  const auto before = copies[1][3].version();
  copies[1][0].zero_();
  copies[1][2].zero_();
  EXPECT_EQ(copies[1][3].version(), before);
  EXPECT_EQ(copies[1][3].to_vector<std::int64_t>()[9], 9);
}

TEST(Comm, M04AnEmptyTensorAmongOthers) {
  const std::vector<ls::Tensor> tensors = {numbers(0, ls::Dtype::u8), numbers(5, ls::Dtype::f32),
                                           numbers(5, ls::Dtype::f64)};
  const auto copies = comm::broadcast_coalesced(tensors, first_devices(2), 256);
  EXPECT_EQ(copies[1][0].numel(), 0);
  EXPECT_EQ(copies[1][1].to_vector<float>()[4], 4.0F);
  EXPECT_EQ(copies[1][2].to_vector<double>()[4], 4.0);
}

TEST(Comm, M05ReduceAddSumsOnTheDestination) {
  const ls::Tensor a = numbers(25, ls::Dtype::f64, "cpu:0");
  const ls::Tensor b = numbers(25, ls::Dtype::f64, "cpu:1");
  const ls::Tensor sum = comm::reduce_add({a, b}, "cpu:0");
  EXPECT_EQ(sum.device(), ls::Device("cpu:0"));
  EXPECT_EQ(sum.to_vector<double>()[24], 48.0);
  EXPECT_EQ(a.to_vector<double>()[24], 24.0);
}

TEST(Comm, M06ReduceAddCoalesced) {
  const std::vector<ls::Tensor> on0 = {numbers(5, ls::Dtype::i64), numbers(10, ls::Dtype::f64)};
  const std::vector<ls::Tensor> on1 = {on0[0].to("cpu:1"), on0[1].to("cpu:1")};
  const auto sums = comm::reduce_add_coalesced({on0, on1}, "cpu:0");
  EXPECT_EQ(sums[0].to_vector<std::int64_t>()[4], 8);
  EXPECT_EQ(sums[1].to_vector<double>()[9], 18.0);
  const auto before = sums[1].version();
  sums[0].zero_();
  EXPECT_EQ(sums[1].version(), before);
}

TEST(Comm, M07TheDestinationMustHoldOneOfTheInputs) {
  EXPECT_TRUE(throws<ls::DeviceError>(
      [] { comm::reduce_add({numbers(5, ls::Dtype::f64, "cpu:1")}, "cpu:0"); },
      "expects destination to be on the same device with one of the tensors"));
}

TEST(Comm, M08ShapesThatDiffer) {
  const ls::Tensor a = ls::ones({5, 5}, {.device = "cpu:0"});
  const ls::Tensor b = ls::ones({5, 4}, {.device = "cpu:1"});
  EXPECT_TRUE(throws<ls::ShapeError>(
      [&] {
        comm::reduce_add({a, b}, "cpu:0");
      },
      "input 1 has invalid size: got 5x4, but expected 5x5"));
}

TEST(Comm, TheSumIsTakenInTheOrderGiven) {
  std::vector<ls::Tensor> parts;
  const std::vector<double> values = {1e16, 1.0, -1e16, 1.0};
  for (int i = 0; i < 4; ++i) {
    parts.push_back(
        ls::scalar_tensor(values[static_cast<std::size_t>(i)], ls::Device(ls::DeviceType::cpu, i)));
  }
  EXPECT_EQ(comm::reduce_add(parts, "cpu:0").item(), ((1e16 + 1.0) - 1e16) + 1.0);
}

TEST(Comm, AnOversizeTensorClosesItsBuffer) {
  // f32 and i64 never share one; a buffer is closed once it has reached the limit.
  const std::vector<ls::Tensor> tensors = {numbers(5, ls::Dtype::f32),  numbers(5, ls::Dtype::i64),
                                           numbers(5, ls::Dtype::f32),  numbers(5, ls::Dtype::f32),
                                           numbers(30, ls::Dtype::f32), numbers(5, ls::Dtype::i64)};
  const auto groups = comm::detail::buffer_groups(tensors, 40);
  const std::vector<std::vector<std::size_t>> expected = {{0, 2}, {1}, {3, 4}, {5}};
  EXPECT_EQ(groups, expected);
}

}  // namespace comm_test
