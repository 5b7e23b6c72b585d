// SPDX-License-Identifier: Apache-2.0
#include "support/varied.hpp"

#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::testing {
namespace varied_test {

TEST(AllClose, AnInfinityIsCloseToItselfAlone) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto close = [](double a, double b) {
    return all_close(from_values<double>({a}, {1}), from_values<double>({b}, {1}));
  };
  for (const double infinity : {kInfinity, -kInfinity}) {
    EXPECT_TRUE(close(infinity, infinity));
    EXPECT_FALSE(close(-infinity, infinity));
    EXPECT_FALSE(close(1, infinity));
    EXPECT_FALSE(close(infinity, 1));
    EXPECT_FALSE(close(std::nan(""), infinity));
  }
  EXPECT_FALSE(close(std::nan(""), 1));
  EXPECT_TRUE(close(1 + 1e-6, 1));
  EXPECT_FALSE(close(1 + 1e-4, 1));
}

}  // namespace varied_test
}  // namespace lockstep::testing
