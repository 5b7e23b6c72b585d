// SPDX-License-Identifier: Apache-2.0
#include <lockstep/error.hpp>
#include <lockstep/optim/lr_scheduler.hpp>
#include <lockstep/optim/sgd.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <numbers>
#include <utility>
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
  EXPECT_EQ(schedule(4, 3), 2);
  EXPECT_EQ(schedule(4, 7), 6);
}

TEST(SequentialLR, SaysThatItHasBeenMovedFrom) {
  optim::SequentialLR schedule({optim::StepLR{}}, {});
  const optim::SequentialLR moved = std::move(schedule);
  EXPECT_EQ(moved(2, 0), 2);
  EXPECT_TRUE(throws<ValueError>([&] { (void)schedule(2, 0); }, "moved from"));
}

TEST(SequentialLR, RefusesMilestonesThatDoNotRise) {
  const LRSchedule step = optim::StepLR{};
  EXPECT_TRUE(throws<ValueError>(
      [&] {
        optim::SequentialLR({step, step}, {});
      },
      "2 schedules and 0 milestones"));
  EXPECT_TRUE(throws<ValueError>([&] { optim::SequentialLR({step, step}, {0}); }, "milestone 0"));
  EXPECT_NO_THROW(optim::SequentialLR({step, step}, {1}));
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
  EXPECT_TRUE(
      throws<ValueError>([] { optim::SequentialLR({nullptr}, {}); }, "SequentialLR", "empty"));
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

// The rates of torch 2.15.
TEST(LRScheduler, SeveralOfOneOptimizerGoOnFromEachOther) {
  const LRSchedule step = optim::StepLR{.step_size = 2, .gamma = 0.5};
  const LRSchedule linear = optim::LinearLR{.start_factor = 0.5, .total_iters = 4};
  const LRSchedule cosine = optim::CosineAnnealingLR{.T_max = 4, .eta_min = 0.1};
  const auto expect = [](const std::vector<LRSchedule>& schedules, const Values& expected) {
    optim::SGD sgd = sgd_of(2);
    std::deque<LRScheduler> schedulers;
    for (const LRSchedule& schedule : schedules) schedulers.emplace_back(sgd, schedule);
    for (std::size_t epoch = 0; epoch < expected.size(); ++epoch) {
      EXPECT_NEAR(sgd.lr(), expected[epoch], 1e-11) << "epoch " << epoch;
      if (epoch == 5) {  // in the order in which they were not made
        optim::SGD resumed = sgd_of(2);
        std::deque<LRScheduler> again;
        for (const LRSchedule& schedule : schedules) again.emplace_back(resumed, schedule);
        for (std::size_t i = schedules.size(); i-- > 0;) {
          again[i].load_state_dict(schedulers[i].state_dict());
        }
        EXPECT_EQ(resumed.lr(), sgd.lr());
        for (std::size_t i = 0; i < schedules.size(); ++i) {
          EXPECT_EQ(again[i].last_lr(), schedulers[i].last_lr());
        }
        for (LRScheduler& scheduler : again) scheduler.step();
        EXPECT_NEAR(resumed.lr(), expected[6], 1e-11);
      }
      for (LRScheduler& scheduler : schedulers) scheduler.step();
      EXPECT_EQ(schedulers.back().last_lr(), sgd.lr());
    }
  };
  const Values warmed = {1, 1.25, 0.75, 0.875, 0.5, 0.5, 0.25, 0.25, 0.125};
  expect({step, linear}, warmed);
  expect({linear, step}, warmed);
  expect({linear, linear}, {0.5, 0.78125, 1.125, 1.53125, 2, 2, 2});
  expect({linear, cosine}, {1, 1.08158639918, 0.801715728753, 0.344663961881, 0.1, 0.378248557873,
                            1.05, 1.72175144213, 2, 1.72175144213});
  expect({cosine, linear}, {1, 1.08524756442, 0.812573593129, 0.360159302222, 0.114285714286,
                            0.392534272158, 1.09877447946, 1.80501468677, 2.09754895892});
  expect({linear, cosine, step},
         {1, 1.08158639918, 0.400857864376, 0.20768732, 0.05, 0.328248557873, 0.439644660941,
          0.679809703886, 0.389644660941, 0.347227182413, 0.122411165235});
}

// As torch's LambdaLR.
TEST(LRScheduler, AScheduleOfOnesOwnSetsItsRateWhateverThatWas) {
  const LRSchedule capped = [](double lr, std::int64_t epoch) {
    return std::max(lr * std::pow(0.5, static_cast<double>(epoch)), 0.3);
  };
  optim::SGD sgd = sgd_of(2);
  LRScheduler step{sgd, optim::StepLR{.step_size = 1, .gamma = 0.1}};
  LRScheduler own{sgd, capped};
  for (const double expected : {2.0, 1.0, 0.5, 0.3, 0.3}) {
    EXPECT_EQ(sgd.lr(), expected);
    sgd.set_lr(0.001);
    step.step();
    own.step();
  }
  LRScheduler table{sgd, [values = std::vector{0.1, 0.01}](double, std::int64_t epoch) {
                      return values.at(static_cast<std::size_t>(epoch));
                    }};
  StateDict dict = table.state_dict();
  for (NamedTensor& entry : dict) {
    if (entry.name == "last_epoch") entry.tensor.fill_(-1);
  }
  std::erase_if(dict, [](const NamedTensor& entry) { return entry.name == "lr"; });
  EXPECT_TRUE(throws<ModuleError>([&] { table.load_state_dict(dict); }, "last_epoch", "negative"));
}

TEST(LRScheduler, GoesOnFromARateThatIsSetByHand) {
  const auto expect = [](const LRSchedule& schedule, const Values& expected) {
    optim::SGD sgd = sgd_of(2);
    LRScheduler scheduler{sgd, schedule};
    for (std::size_t epoch = 0; epoch < expected.size(); ++epoch, scheduler.step()) {
      EXPECT_NEAR(sgd.lr(), expected[epoch], 1e-11) << "epoch " << epoch;
      if (epoch == 2) sgd.set_lr(0.3);
    }
  };
  expect(optim::StepLR{.step_size = 2, .gamma = 0.5}, {2, 2, 1, 0.3, 0.15, 0.15, 0.075});
  expect(optim::StepLR{.step_size = 3, .gamma = 0.5}, {2, 2, 2, 0.15, 0.15, 0.15, 0.075});
  expect(optim::CosineAnnealingLR{.T_max = 4, .eta_min = 0.1},
         {2, 1.72175144213, 1.05, 0.158578643763, 0.1, 0.378248557873, 1.05});
  expect(optim::LinearLR{.start_factor = 0.5, .total_iters = 4}, {1, 1.25, 1.5, 0.35, 0.4, 0.4});
}

// As torch, which sets the next schedule's own rate at a milestone.
TEST(LRScheduler, AMilestoneSetsAsideWhatHasChangedTheRate) {
  const auto rates_with = [](const LRSchedule& schedule, std::size_t epoch, double lr) {
    optim::SGD sgd = sgd_of(0.1);
    LRScheduler scheduler{sgd, schedule};
    for (std::size_t i = 0; i < epoch; ++i) scheduler.step();
    sgd.set_lr(lr);
    Values result;
    for (int i = 0; i < 3; ++i) {
      scheduler.step();
      result.push_back(sgd.lr());
    }
    return result;
  };
  const optim::SequentialLR steps({optim::StepLR{.step_size = 1}, optim::StepLR{5, 0.5}}, {8});
  expect_near(rates_with(steps, 6, 0.05), {0.005, 0.1, 0.1});
  const optim::SequentialLR waves({optim::CosineAnnealingLR{.T_max = 10, .eta_min = 0.01},
                                   optim::LinearLR{.start_factor = 0.5, .total_iters = 2}},
                                  {10});
  expect_near(rates_with(waves, 9, 0.001), {0.05, 0.075, 0.1});
  expect_near(rates_with(waves, 10, 0.1), {0.15, 0.2, 0.2});
  optim::SGD sgd = sgd_of(0.1);
  LRScheduler before{sgd, optim::StepLR{}};
  sgd.set_lr(0.7);
  LRScheduler begins{sgd, waves};
  EXPECT_EQ(sgd.lr(), 0.1);
  const optim::SequentialLR own({[](double lr, std::int64_t) { return lr * 3; }, waves}, {2});
  expect_near(rates_with(own, 0, 0.7), {0.3, 0.1, waves(0.1, 1)});
  expect_near(rates_with(own, 11, 0.7), {0.05, 0.075, 0.1});
}

TEST(LRScheduler, AFactorThatIsNearlyOrWhollyZeroIsStillAFactor) {
  optim::SGD sgd = sgd_of(1);
  LRScheduler scheduler{sgd, optim::StepLR{.step_size = 1, .gamma = 0.9}};
  for (int i = 0; i < 7070; ++i) scheduler.step();
  sgd.set_lr(0.1);
  scheduler.step();
  EXPECT_DOUBLE_EQ(sgd.lr(), 0.09);
  LRScheduler off{sgd, optim::StepLR{.step_size = 2, .gamma = 0}};
  for (const double expected : {0.09, 0.0, 0.0}) {
    off.step();
    EXPECT_DOUBLE_EQ(sgd.lr(), expected);
  }
  sgd.set_lr(0.5);
  off.step();
  EXPECT_EQ(sgd.lr(), 0);
}

// The rates of torch 2.15, but of the callable, for which torch leaves such a group alone.
TEST(LRScheduler, AGroupThatIsAddedLaterTakesTheStepsFromThenOn) {
  const auto expect = [](const LRSchedule& schedule, const Values& expected) {
    optim::SGD sgd = sgd_of(0.1);
    LRScheduler scheduler{sgd, schedule};
    for (int epoch = 0; epoch < 7; ++epoch) scheduler.step();
    sgd.add_param_group({.params = std::vector{make_parameter({1})}, .lr = 0.5});
    for (const double lr : expected) {
      scheduler.step();
      EXPECT_NEAR(sgd.lr(1), lr, 5e-4);
    }
  };
  expect(optim::StepLR{.step_size = 2}, {0.05, 0.05, 0.005});
  expect(optim::CosineAnnealingLR{.T_max = 10}, {0.232, 0.059, 0});
  expect(optim::LinearLR{.start_factor = 0.1, .total_iters = 10}, {0.562, 0.623, 0.685});
  expect([](double lr, std::int64_t epoch) { return lr / static_cast<double>(1 + epoch); },
         {0.0556, 0.05, 0.0455});
}

TEST(LRScheduler, AScheduleThatIsMadeAnewGoesByTheRateThatTheSavedOneBeganWith) {
  const LRSchedule schedule = [](double lr, std::int64_t epoch) {
    return lr / static_cast<double>(1 + epoch);
  };
  optim::SGD sgd = sgd_of(1);
  const auto has_initial_lr = [&] {
    return std::ranges::any_of(sgd.state_dict(), [](const NamedTensor& entry) {
      return entry.name == "param_groups.0.initial_lr";
    });
  };
  EXPECT_FALSE(has_initial_lr());
  LRScheduler scheduler{sgd, schedule};
  EXPECT_TRUE(has_initial_lr());
  for (int epoch = 0; epoch < 9; ++epoch) scheduler.step();
  optim::SGD resumed = sgd_of(1);
  resumed.load_state_dict(sgd.state_dict());
  EXPECT_EQ(resumed.lr(), 0.1);
  LRScheduler anew{resumed, schedule};
  EXPECT_EQ(resumed.lr(), 1);
  StateDict dict = sgd.state_dict();
  for (NamedTensor& entry : dict) {
    if (entry.name == "param_groups.0.initial_lr") entry.tensor.fill_(-1);
  }
  EXPECT_TRUE(throws<ValueError>([&] { resumed.load_state_dict(dict); }, "SGD", "initial_lr"));
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
  const StateDict the_last{{"last_epoch", scalar_tensor(INT64_MAX / 2)},
                           {"base_lr", scalar_tensor(1.0)}};
  EXPECT_TRUE(
      throws<ModuleError>([&] { scheduler.load_state_dict(the_last); }, "last_epoch is too large"));
  for (const char* name : {"base_lr", "lr", "last_lr"}) {
    for (const double value : {-1.0, HUGE_VAL, std::nan("")}) {
      StateDict dict = scheduler.state_dict();
      for (NamedTensor& entry : dict) {
        if (entry.name == name) entry.tensor.fill_(value);
      }
      EXPECT_TRUE(throws<ValueError>([&] { scheduler.load_state_dict(dict); }, name, "finite"));
    }
  }
  EXPECT_EQ(sgd.lr(), 0.5);
}

}  // namespace lr_scheduler_test
}  // namespace lockstep
