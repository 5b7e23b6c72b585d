// SPDX-License-Identifier: Apache-2.0

#include "examples/program.hpp"

#include <gtest/gtest.h>

namespace {

using lockstep::testing::ProgramResult;
using lockstep::testing::run_example;

TEST(Collectives, ShowsWhatEachStepDoes) {
  const ProgramResult result = run_example("collectives");
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, R"(scatter: 16 rows are 8 on cpu:0 8 on cpu:1
scatter: 15 rows are 8 on cpu:0 7 on cpu:1
replicate: weight [20, 10] on cpu:0
replicate: bias [20] on cpu:0
replicate: weight [20, 10] on cpu:1
replicate: bias [20] on cpu:1
parallel_apply: [8, 20] on cpu:0
parallel_apply: [8, 20] on cpu:1
gather: [16, 20] on cpu:0
backward: gradient of weight [20, 10] on cpu:0
backward: gradient of bias [20] on cpu:0
backward: each bias has 16
backward: gradient of the batch [16, 10] on cpu
)");
}

}  // namespace
