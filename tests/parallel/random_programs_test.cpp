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
  expect_agreement(property::cases(kSanitizer || simulated ? 200 : 2000));
}

// Every operation is asynchronous, and the current streams change between what the user does.
TEST(RandomPrograms, TrainAsTheFormulasSayOnQueuedStreams) {
  const QueuedCompute queued;
  const Queued others(other_streams());
  expect_agreement(property::cases(kSanitizer ? 200 : 1000));
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
    const auto is_open = [](const Observed& seen) { return seen.gradients_open || seen.all_open; };
    whole += expected.rounds.size() == program.rounds.size() &&
             std::none_of(expected.rounds.begin(), expected.rounds.end(), is_open);
  }
  EXPECT_EQ(drawn.size(), static_cast<std::size_t>(Op::binary_cross_entropy) + 1);
  EXPECT_GT(whole, kCases * 3 / 4);
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
  EXPECT_EQ(small.steps[0].op, Op::quotient);
  EXPECT_EQ(small.rounds.size(), 1U);
  EXPECT_EQ(small.devices.size(), 1U);
}

}  // namespace random_programs_test
