// SPDX-License-Identifier: Apache-2.0
#include "parallel/programs/comparison.hpp"
#include "parallel/programs/generate.hpp"
#include "parallel/programs/program.hpp"
#include "parallel/programs/reference_training.hpp"
#include "parallel/programs/shrink.hpp"
#include "parallel/property_support.hpp"
#include "support/devices.hpp"
#include "support/gate.hpp"
#include "support/sanitizers.hpp"
#include "support/time_limit.hpp"
#include "support/warnings.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <vector>

namespace random_programs_test {

namespace property = lockstep::testing::property;
using namespace lockstep::testing::programs;
using lockstep::testing::CaughtWarnings;
using lockstep::testing::first_devices;
using lockstep::testing::kSanitizer;
using lockstep::testing::Queued;
using lockstep::testing::QueuedCompute;
using lockstep::testing::TimeLimit;

Program draw(std::size_t number) {
  property::Random random(number);
  return Generator(random).draw();
}

// Two ranks on one GPU share its streams. Either may look for a fault of an index while a kernel of
// the other one runs, which lockstep allows and the simulated runtime takes for a race.
bool shares_streams(const Program& program) {
  std::vector<std::size_t> devices = program.devices;
  std::sort(devices.begin(), devices.end());
  return program.way == Way::distributed &&
         std::adjacent_find(devices.begin(), devices.end()) != devices.end();
}

// Shows the first of `cases` programs in which the library and the formulas part, made small.
void expect_agreement(std::size_t cases) {
  const CaughtWarnings warnings;
  for (std::size_t i = 0; i < cases; ++i) {
    TimeLimit::at("program", i);
    const Program program = draw(i);
    if (shares_streams(program) && first_devices(1)[0].is_cuda()) continue;
    const auto difference = Comparison::difference(program);
    if (!difference) continue;
    const Program small =
        shrink(program, [](const Program& p) { return Comparison::difference(p).has_value(); });
    FAIL() << property::name_of_case(i) << ": " << *difference << "\nand "
           << Comparison::difference(small).value_or("sometimes") << " in\n"
           << describe(small);
  }
}

TEST(RandomPrograms, TrainAsTheFormulasSay) {
  const bool simulated = first_devices(1)[0].is_cuda();
  expect_agreement(property::cases(kSanitizer || simulated ? 200 : 1600));
}

// Every operation is asynchronous, and the current streams change between what the user does.
TEST(RandomPrograms, TrainAsTheFormulasSayOnQueuedStreams) {
  const QueuedCompute queued;
  const Queued others(other_streams());
  expect_agreement(property::cases(kSanitizer ? 200 : 800));
}

// The machinery itself: it leaves nothing out, and few programs end before they are compared whole.
TEST(RandomPrograms, EveryOperationIsDrawnAndMostAreComparedWhole) {
  std::set<Op> drawn;
  std::size_t whole = 0;
  constexpr std::size_t kCases = 500;
  for (std::size_t i = 0; i < kCases; ++i) {
    const Program program = draw(i);
    for (const Step& step : program.steps) drawn.insert(step.op);
    const Trained expected = ReferenceTraining::train(program);
    const auto is_open = [](const Observed& seen) { return seen.all_open; };
    whole += expected.rounds.size() == program.rounds.size() &&
             std::none_of(expected.rounds.begin(), expected.rounds.end(), is_open);
  }
  constexpr std::size_t kOps = static_cast<std::size_t>(Op::binary_cross_entropy) + 1;
  EXPECT_EQ(drawn.size(), kOps);
  drawn.clear();
  for (std::size_t i = 0; i < 4000; ++i) {
    const Program program = draw(i);
    if (program.type <= Type::f32) continue;
    for (const Step& step : program.steps) drawn.insert(step.op);
  }
  EXPECT_EQ(drawn.size(), kOps - 2) << "in half precision all but argmax and where";
  EXPECT_GT(whole, kCases * 3 / 4);
}

// What may be off by roundings may not be anything: a twentieth too much is found in most programs
// of each type, and in some what only a second derivative has too much.
TEST(RandomPrograms, FaultsAreFoundInEveryTypeAndInSecondDerivatives) {
  const Fault value = [](const Step&, lockstep::Tensor& result) {
    if (is_floating_point(result.dtype())) result = result * 1.05;
  };
  const Fault bend = [](const Step&, lockstep::Tensor& result) {
    if (result.dtype() == lockstep::Dtype::f64) result = result + square(result - result.detach());
  };
  const CaughtWarnings warnings;
  const auto found = [](Fault fault, const auto& has_it) {
    std::size_t programs = 0;
    std::size_t different = 0;
    for (std::size_t number = 0; programs < 10; ++number) {
      const Program program = draw(number);
      if (!has_it(program)) continue;
      ++programs;
      different += Comparison::difference(program, fault) ? 1 : 0;
    }
    return different;
  };
  for (const Type type : {Type::f64, Type::f32, Type::f16, Type::bf16}) {
    for (const bool autocast : {false, true}) {
      if (autocast && type < Type::f16) continue;
      const auto has_it = [&](const Program& program) {
        return program.coarsest() == type && program.autocast.has_value() == autocast;
      };
      EXPECT_GT(found(value, has_it), 5) << name_of(type) << (autocast ? " by autocast" : "");
    }
  }
  EXPECT_GT(found(bend, [](const Program& program) { return program.penalty; }), 2);
}

// A wrong result is found, and told by a program of a single step.
TEST(RandomPrograms, AFaultShrinksToTheStepThatHasIt) {
  const Fault fault = [](const Step& step, lockstep::Tensor& result) {
    if (step.op == Op::quotient && result.device() != first_devices(1)[0]) {
      result = result * 1.001;
    }
  };
  const CaughtWarnings warnings;
  const auto fails = [&](const Program& program) {
    return Comparison::difference(program, fault).has_value();
  };
  std::size_t number = 0;
  while (number < 1000 && !fails(draw(number))) ++number;
  ASSERT_LT(number, 1000);
  const Program small = shrink(draw(number), fails);
  ASSERT_EQ(small.steps.size(), 1U) << describe(small);
  EXPECT_EQ(small.steps[0].op, Op::quotient)
      << describe(small) << *Comparison::difference(small, fault);
  EXPECT_EQ(small.rounds.size(), 1U);
  EXPECT_EQ(small.devices.size(), 1U);
}

}  // namespace random_programs_test
