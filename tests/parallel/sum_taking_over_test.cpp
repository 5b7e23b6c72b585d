// SPDX-License-Identifier: Apache-2.0
//
// Sums of gradients in the memory of the first replica's, where nobody else has that any more.
#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/backend/memory_stats.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/comm/reduce_add.hpp>
#include <lockstep/parallel/functions.hpp>
#include <lockstep/tensor/creation.hpp>

#include "support/varied.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ls = lockstep;
namespace comm = lockstep::comm;
using ls::testing::varied;

namespace sum_taking_over_test {

constexpr std::int64_t kCount = 1000;
// Host devices, also where the other tests are run on GPUs: there sums have memory of their own.
std::vector<ls::Device> devices() {
  const std::vector<ls::Device> all = ls::host_devices();
  return {all.begin(), all.begin() + 3};
}
ls::Device first() { return devices()[0]; }
ls::Device second() { return devices()[1]; }

const void* memory_of(const ls::Tensor& tensor) { return tensor.impl()->data(); }

// One summand on each device, and what they add up to.
struct Summands {
  explicit Summands(const ls::Shape& shape = {kCount}) {
    for (const ls::Device device : devices()) {
      list.push_back(varied<float>(shape, list.size(), device));
      const std::vector<float> values = list.back().to_vector<float>();
      if (expected.empty()) expected.assign(values.size(), 0);
      for (std::size_t i = 0; i < values.size(); ++i) expected[i] += values[i];
    }
  }
  ls::Tensor sum(ls::Device destination = first()) {
    std::vector<ls::Tensor> sums(1);
    comm::detail::sum_lists(sums, {list}, destination, comm::kDefaultBufferSize, true);
    return sums[0];
  }
  std::vector<ls::Tensor> list;
  std::vector<float> expected;
};

TEST(SumTakingOver, TheSumTakesTheMemoryOfTheFirst) {
  Summands summands;
  const void* const memory = memory_of(summands.list[0]);
  const ls::Tensor sum = summands.sum();
  EXPECT_EQ(memory_of(sum), memory);
  EXPECT_EQ(sum.to_vector<float>(), summands.expected);
}

TEST(SumTakingOver, WhatSomebodyElseHasStaysAsItIs) {
  Summands summands;
  const ls::Tensor held = summands.list[0];
  const std::vector<float> before = held.to_vector<float>();
  const std::uint64_t version = held.version();
  EXPECT_EQ(summands.sum().to_vector<float>(), summands.expected);
  EXPECT_EQ(held.to_vector<float>(), before);
  EXPECT_EQ(held.version(), version);
}

TEST(SumTakingOver, WhatAViewShowsStaysAsItIs) {
  Summands summands;
  const ls::Tensor view = summands.list[0].narrow(0, 0, 10);
  const std::vector<float> before = view.to_vector<float>();
  EXPECT_EQ(summands.sum().to_vector<float>(), summands.expected);
  EXPECT_EQ(view.to_vector<float>(), before);
}

TEST(SumTakingOver, OnlyAContiguousSummandOnTheDestinationWillDo) {
  Summands elsewhere;
  const ls::Tensor moved = elsewhere.sum(second());
  EXPECT_EQ(moved.device(), second());
  EXPECT_EQ(moved.to_vector<float>(), elsewhere.expected);

  Summands strided({20, 50});
  const std::vector<float> expected =
      ls::from_values(strided.expected, {20, 50}).transpose(0, 1).to_vector<float>();
  for (ls::Tensor& each : strided.list) each = each.transpose(0, 1);
  const void* const memory = memory_of(strided.list[0]);
  const ls::Tensor sum = strided.sum();
  EXPECT_NE(memory_of(sum), memory);
  EXPECT_TRUE(sum.is_contiguous());
  EXPECT_EQ(sum.to_vector<float>(), expected);
}

// y is made of w's copies on two devices.
struct TwoCopies {
  ls::Tensor w = varied<float>({kCount}, 7, first()).requires_grad_();
  std::vector<ls::Tensor> x{varied<float>({kCount}, 1, first()),
                            varied<float>({kCount}, 2, second())};
  std::vector<ls::Tensor> copies =
      ls::apply(ls::functions::Broadcast{{first(), second()}}, std::vector<ls::Tensor>{w});
  ls::Tensor y = (copies[0] * x[0]).sum() + (copies[1] * x[1]).sum().to(first());

  std::vector<float> expected() const { return (x[0] + x[1].to(first())).to_vector<float>(); }
};

TEST(SumTakingOver, ABackwardThroughBroadcastNeedsNoMemoryForTheSum) {
  const TwoCopies one;
  const TwoCopies two;
  const ls::Tensor of_one_copy = (one.copies[0] * one.x[0]).sum();
  const auto allocations_of = [](const ls::Tensor& result) {
    const auto before = ls::memory_stats(first()).allocations;
    result.backward();
    return ls::memory_stats(first()).allocations - before;
  };
  const auto alone = allocations_of(of_one_copy);
  const auto both = allocations_of(two.y);
  EXPECT_EQ(two.w.grad().to_vector<float>(), two.expected());
  EXPECT_LE(both, alone);
}

TEST(SumTakingOver, TheGradientOfACopyThatSomebodyAsksForIsItsOwn) {
  const TwoCopies two;
  const std::vector<ls::Tensor> gradients = ls::autograd::grad({two.y}, {two.copies[0], two.w});
  EXPECT_EQ(gradients[0].to_vector<float>(), two.x[0].to_vector<float>());
  EXPECT_EQ(gradients[1].to_vector<float>(), two.expected());
}

}  // namespace sum_taking_over_test
