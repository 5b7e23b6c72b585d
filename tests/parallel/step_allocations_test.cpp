// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/backend/threads/worker_team.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/loss.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/comm.hpp>
#include <lockstep/parallel/comm/detail/transfer.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/recycled.hpp>

#include "support/count_operator_new.hpp"
#include "support/sanitizers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {
namespace step_allocations_test {

// By how little a call raises `count`, among many: other threads may allocate meanwhile, and a
// thread that takes over a share for the first time has kept nothing yet.
template <class Count, class F>
std::uint64_t fewest(const Count& count, F&& call) {
  std::uint64_t fewest = UINT64_MAX;
  for (int i = 0; i < 300; ++i) {
    const std::uint64_t before = count();
    call();
    fewest = std::min(fewest, count() - before);
  }
  return fewest;
}

template <class F>
std::uint64_t fewest_allocations(F&& call) {
  return fewest([] { return testing::operator_new_calls(); }, call);
}

std::uint64_t shares_posted() { return detail::team_stats().shares_posted; }
std::uint64_t copies_issued() { return comm::detail::copies_issued().load(); }

// Gives each thread of a team blocks to recycle, more than a step takes: else it would count which
// thread frees what another one has made.
void fill_recycled_blocks() {
  detail::run_team(2, [](std::size_t) {
    for (std::size_t bytes = 32; bytes <= detail::RecycledBlocks::kLargest; bytes += 32) {
      std::array<void*, 100> blocks;
      for (void*& block : blocks) block = detail::RecycledBlocks::take(bytes);
      for (void* const block : blocks) detail::RecycledBlocks::put(block, bytes);
    }
  });
}

struct Tiny {
  nn::Linear fc{5, 2};
  Tensor forward(const Tensor& x) { return fc(x); }
};

template <class Count>
std::uint64_t fewest_of_a_step(const Count& count, const std::vector<Device>& devices) {
  DataParallel model{Tiny{}, devices};
  optim::SGD sgd{model.parameters(), {.lr = 1e-3}};
  const Tensor x = randn({30, 5});
  const Tensor y = randn({30, 2}).to("cpu:0");
  fill_recycled_blocks();
  return fewest(count, [&] {
    sgd.zero_grad();
    mse_loss(model(x), y).backward();
    sgd.step();
  });
}

// What a step of the smallest model costs is mostly what it allocates. AddressSanitizer's memory is
// never recycled.
TEST(StepAllocations, ATinyStepAllocatesLittle) {
  if (testing::kAddressSanitizer) GTEST_SKIP() << "memory is not recycled";
  EXPECT_LE(fewest_of_a_step(testing::operator_new_calls, {"cpu:0", "cpu:1"}), 23U);
  EXPECT_LE(fewest_of_a_step(testing::operator_new_calls, {"cpu:0"}), 6U);
}

// A share is a hand-over to another thread, forward and backward; a copy is from device to device.
TEST(StepAllocations, ATinyStepPostsAndCopiesLittle) {
  EXPECT_LE(fewest_of_a_step(shares_posted, {"cpu:0", "cpu:1"}), 2U);
  EXPECT_LE(fewest_of_a_step(copies_issued, {"cpu:0", "cpu:1"}), 7U);
  const std::vector<Device> four{"cpu:0", "cpu:1", "cpu:2", "cpu:3"};
  EXPECT_LE(fewest_of_a_step(shares_posted, four), 6U);
  EXPECT_LE(fewest_of_a_step(copies_issued, four), 17U);
}

TEST(StepAllocations, OneOperationAndItsBackwardAllocateLittle) {
  if (testing::kAddressSanitizer) GTEST_SKIP() << "memory is not recycled";
  const Tensor a = ones({2}, {.device = "cpu:0", .requires_grad = true});
  const Tensor b = ones({2}, {.device = "cpu:0"});
  EXPECT_LE(fewest_allocations([&] {
              (a + b).backward(b);
              a.set_grad({});
            }),
            1U);
  EXPECT_EQ(fewest_allocations([&] {
              const NoGradGuard guard;
              (void)(a + b);
            }),
            0U);
}

}  // namespace step_allocations_test
}  // namespace lockstep
