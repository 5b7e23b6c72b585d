// SPDX-License-Identifier: Apache-2.0

#include "examples/program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

// All that the tutorial prints. The lines of one batch's replicas may come in any order, so they
// are sorted on both sides.
namespace {

using lockstep::testing::lines_of;
using lockstep::testing::ProgramResult;
using lockstep::testing::run_example;
using Lines = std::vector<std::string>;

// Sorts each run of lines that replicas print.
Lines in_order(Lines lines) {
  const auto is_replica = [](const std::string& line) {
    return line.find("In Model:") != std::string::npos;
  };
  for (auto first = lines.begin(); first != lines.end();) {
    first = std::find_if(first, lines.end(), is_replica);
    const auto last = std::find_if_not(first, lines.end(), is_replica);
    std::sort(first, last);
    first = last;
  }
  return lines;
}

// What is expected of batches of 30, 30, 30 and 10 rows, given the lines of a full batch and of the
// last one.
Lines expected(const Lines& header, const Lines& full, const Lines& last) {
  Lines lines = header;
  for (int batch = 0; batch < 3; ++batch) lines.insert(lines.end(), full.begin(), full.end());
  lines.insert(lines.end(), last.begin(), last.end());
  return in_order(lines);
}

TEST(Tutorial, PrintsTheLinesOfOneDevice) {
  const ProgramResult result = run_example("tutorial --devices 1");
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(in_order(lines_of(result.out)),
            expected({},
                     {"In Model: input size [30, 5] output size [30, 2]",
                      "Outside: input size [30, 5] output size [30, 2]"},
                     {"In Model: input size [10, 5] output size [10, 2]",
                      "Outside: input size [10, 5] output size [10, 2]"}));
}

TEST(Tutorial, PrintsTheLinesOfTwoDevices) {
  const ProgramResult result = run_example("tutorial --devices 2");
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(in_order(lines_of(result.out)),
            expected({"Use 2 devices!"},
                     {"    In Model: input size [15, 5] output size [15, 2]",
                      "    In Model: input size [15, 5] output size [15, 2]",
                      "Outside: input size [30, 5] output size [30, 2]"},
                     {"    In Model: input size [5, 5] output size [5, 2]",
                      "    In Model: input size [5, 5] output size [5, 2]",
                      "Outside: input size [10, 5] output size [10, 2]"}));
}

TEST(Tutorial, PrintsTheLinesOfThreeDevices) {
  const ProgramResult result = run_example("tutorial --devices 3");
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(in_order(lines_of(result.out)),
            expected({"Use 3 devices!"},
                     {"    In Model: input size [10, 5] output size [10, 2]",
                      "    In Model: input size [10, 5] output size [10, 2]",
                      "    In Model: input size [10, 5] output size [10, 2]",
                      "Outside: input size [30, 5] output size [30, 2]"},
                     {"    In Model: input size [4, 5] output size [4, 2]",
                      "    In Model: input size [4, 5] output size [4, 2]",
                      "    In Model: input size [2, 5] output size [2, 2]",
                      "Outside: input size [10, 5] output size [10, 2]"}));
}

}  // namespace
