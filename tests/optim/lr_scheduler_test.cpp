// SPDX-License-Identifier: Apache-2.0
#include <lockstep/error.hpp>
#include <lockstep/optim/lr_scheduler.hpp>
#include <lockstep/optim/sgd.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <vector>

#include "optim/parameters.hpp"
#include "support/expect_error.hpp"

namespace lockstep {
namespace lr_scheduler_test {

using optim::LRSchedule;
using optim::LRScheduler;
using testing::make_parameter;
using testing::throws;
using testing::Values;

optim::SGD sgd_of(double lr) { return optim::SGD{std::vector{make_parameter({1})}, {.lr = lr}}; }

// The rates of the first epochs.
Values rates(double lr, const LRSchedule& schedule, std::size_t count) {
  optim::SGD sgd = sgd_of(lr);
  LRScheduler scheduler{sgd, schedule};
  Values result;
  for (; result.size() < count; scheduler.step()) result.push_back(sgd.lr());
  return result;
}

void expect_near(const Values& actual, const Values& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], 1e-15) << "epoch " << i;
  }
}

TEST(StepLR, MultipliesAtEveryStepSize) {
  expect_near(rates(0.5, optim::StepLR{.step_size = 2}, 7),
              {0.5, 0.5, 0.05, 0.05, 0.005, 0.005, 0.0005});
  expect_near(rates(8, optim::StepLR{.step_size = 1, .gamma = 0.5}, 4), {8, 4, 2, 1});
}

TEST(LinearLR, WarmsUpAndStays) {
  const auto third = [](double part) { return 0.3 * (1 + 2 * part) / 3; };
  expect_near(rates(0.3, optim::LinearLR{}, 8),
              {third(0), third(0.2), third(0.4), third(0.6), third(0.8), 0.3, 0.3, 0.3});
  expect_near(rates(4, optim::LinearLR{.start_factor = 1, .end_factor = 0, .total_iters = 4}, 6),
              {4, 3, 2, 1, 0, 0});
}

TEST(CosineAnnealingLR, FollowsTheWave) {
  const double root = std::numbers::sqrt2 / 2;
  expect_near(rates(2, optim::CosineAnnealingLR{.T_max = 4}, 9),
              {2, 1 + root, 1, 1 - root, 0, 1 - root, 1, 1 + root, 2});
  expect_near(rates(1, optim::CosineAnnealingLR{.T_max = 3, .eta_min = 0.2}, 4),
              {1, 0.8, 0.4, 0.2});
}

TEST(SequentialLR, BeginsEachScheduleAtItsMilestone) {
  const optim::SequentialLR schedule(
      {optim::LinearLR{.start_factor = 0.5, .total_iters = 2}, optim::StepLR{.gamma = 0.5},
       [](double lr, std::int64_t epoch) { return lr + static_cast<double>(epoch); }},
      {2, 5});
  expect_near(rates(4, schedule, 8), {2, 3, 4, 2, 1, 4, 5, 6});
}

TEST(SequentialLR, RefusesMilestonesThatDoNotRise) {
  const LRSchedule step = optim::StepLR{};
  EXPECT_TRUE(throws<ValueError>(
      [&] {
        optim::SequentialLR({step, step}, {});
      },
      "2 schedules and 0 milestones"));
  EXPECT_TRUE(throws<ValueError>([&] { optim::SequentialLR({step, step}, {0}); }, "milestone 0"));
  EXPECT_TRUE(throws<ValueError>(
      [&] {
        optim::SequentialLR({step, step, step}, {3, 3});
      },
      "milestone 3"));
}

TEST(LRScheduler, RefusesSchedulesThatAreNotValid) {
  const auto make = [](const LRSchedule& schedule) {
    return [schedule] {
      optim::SGD sgd = sgd_of(1);
      LRScheduler(sgd, schedule);
    };
  };
  EXPECT_TRUE(throws<ValueError>(make(nullptr), "empty"));
  EXPECT_TRUE(throws<ValueError>(make(optim::StepLR{.step_size = 0}), "StepLR"));
  EXPECT_TRUE(throws<ValueError>(make(optim::CosineAnnealingLR{.T_max = 0}), "T_max"));
  EXPECT_TRUE(throws<ValueError>(make(optim::LinearLR{.start_factor = 0}), "start_factor"));
  EXPECT_TRUE(throws<ValueError>(make(optim::LinearLR{.end_factor = 2}), "end_factor"));
  EXPECT_TRUE(throws<ValueError>(make(optim::LinearLR{.total_iters = 0}), "total_iters"));
}

TEST(LRScheduler, ARateThatNoOptimizerTakesChangesNothing) {
  optim::SGD sgd = sgd_of(1);
  LRScheduler scheduler{
      sgd, [](double lr, std::int64_t epoch) { return lr - static_cast<double>(epoch); }};
  scheduler.step();
  EXPECT_EQ(sgd.lr(), 0);
  EXPECT_THROW(scheduler.step(), ValueError);
  EXPECT_EQ(sgd.lr(), 0);
  EXPECT_EQ(scheduler.last_epoch(), 1);
}

TEST(LRScheduler, GoesOnFromItsState) {
  const optim::CosineAnnealingLR schedule{.T_max = 10};
  optim::SGD sgd = sgd_of(0.5);
  LRScheduler scheduler{sgd, schedule};
  for (int epoch = 0; epoch < 3; ++epoch) scheduler.step();
  optim::SGD fresh = sgd_of(7);
  LRScheduler again{fresh, schedule};
  again.load_state_dict(scheduler.state_dict());
  EXPECT_EQ(again.last_epoch(), 3);
  EXPECT_EQ(again.last_lr(), scheduler.last_lr());
  EXPECT_EQ(fresh.lr(), sgd.lr());
  scheduler.step();
  again.step();
  EXPECT_EQ(fresh.lr(), sgd.lr());
}

TEST(LRScheduler, RefusesStatesThatAreNone) {
  optim::SGD sgd = sgd_of(0.5);
  LRScheduler scheduler{sgd, optim::StepLR{}};
  EXPECT_TRUE(throws<ModuleError>(
      [&] {
        scheduler.load_state_dict({{"x", tensor({1.0})}});
      },
      "LRScheduler", "missing: last_epoch", "missing: base_lr", "unexpected: x"));
  const StateDict before_the_first{{"last_epoch", scalar_tensor(std::int64_t{-1})},
                                   {"base_lr", scalar_tensor(1.0)}};
  EXPECT_TRUE(throws<ModuleError>([&] { scheduler.load_state_dict(before_the_first); },
                                  "last_epoch is negative"));
  EXPECT_EQ(sgd.lr(), 0.5);
}

}  // namespace lr_scheduler_test
}  // namespace lockstep
