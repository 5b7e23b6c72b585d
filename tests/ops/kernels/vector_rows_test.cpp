// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/kernels/vector_rows.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/rows_by_instructions.hpp"

namespace lockstep {
namespace vector_rows_test {

namespace vectorized = detail::vectorized;
using testing::kRowLengths;
using testing::vector_instructions;
using testing::where_of_rows;
using vectorized::Instructions;
using Floats = std::vector<float>;

constexpr std::size_t kRows = 3;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Numbers between −20 and 20, the same ones each time.
Floats numbers(std::size_t count, std::uint32_t state) {
  return testing::numbers(count, 20, state);
}

// Each of the results within `units` of f32's unit relative to the row's greatest, in double.
void expect_close(const std::string& where, const Floats& found, const std::vector<double>& exact,
                  double units) {
  ASSERT_EQ(found.size(), exact.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double scale = std::max(std::abs(exact[i]), 1e-37);
    ASSERT_LE(std::abs(static_cast<double>(found[i]) - exact[i]), units * 0x1p-24 * scale)
        << where << " at " << i << ": " << found[i] << " for " << exact[i];
  }
}

struct Exact {
  std::vector<double> y, logarithm, grad, log_grad;
};

// By the formulas, from what the functions get.
Exact exact_rows(const Floats& x, const Floats& y, const Floats& log_y, const Floats& g,
                 std::size_t count) {
  Exact exact;
  for (std::size_t first = 0; first < x.size(); first += count) {
    const auto at = [first](const Floats& of, std::size_t i) {
      return static_cast<double>(of[first + i]);
    };
    double most = at(x, 0);
    double sum = 0;
    double dot = 0;
    double all = 0;
    for (std::size_t i = 0; i < count; ++i) most = std::max(most, at(x, i));
    for (std::size_t i = 0; i < count; ++i) {
      sum += std::exp(at(x, i) - most);
      dot += at(g, i) * at(y, i);
      all += at(g, i);
    }
    for (std::size_t i = 0; i < count; ++i) {
      exact.y.push_back(std::exp(at(x, i) - most) / sum);
      exact.logarithm.push_back(at(x, i) - most - std::log(sum));
      exact.grad.push_back(at(y, i) * (at(g, i) - dot));
      exact.log_grad.push_back(at(g, i) - std::exp(at(log_y, i)) * all);
    }
  }
  return exact;
}

TEST(VectorRows, SoftmaxAndItsGradientAreThoseOfTheFormulas) {
  for (const Instructions by : vector_instructions()) {
    for (const std::size_t count : kRowLengths) {
      const std::string where = where_of_rows(count, by);
      const std::size_t size = kRows * count;
      Floats x = numbers(size, 1);
      x[1] = -kInfinity;
      x[count + 2] = -200;  // whose exponential is 0 in f32, if the greatest is above −90
      const Floats g = numbers(size, 2);
      Floats y(size), log_y(size), grad(size), log_grad(size);
      ASSERT_TRUE(vectorized::softmax(x.data(), y.data(), kRows, count, by)) << where;
      ASSERT_TRUE(vectorized::log_softmax(x.data(), log_y.data(), kRows, count, by)) << where;
      ASSERT_TRUE(vectorized::softmax_grad(g.data(), y.data(), grad.data(), kRows, count, by));
      ASSERT_TRUE(
          vectorized::log_softmax_grad(g.data(), log_y.data(), log_grad.data(), kRows, count, by));
      EXPECT_EQ(log_y[1], -kInfinity);
      log_y[1] = x[1] = -1000;
      Exact exact = exact_rows(x, y, log_y, g, count);
      log_y[1] = static_cast<float>(exact.logarithm[1]);
      expect_close("softmax, " + where, y, exact.y, 64);
      expect_close("log_softmax, " + where, log_y, exact.logarithm, 16);
      // These are differences: relative to what is subtracted, here at most some hundreds.
      for (std::size_t i = 0; i < size; ++i) {
        ASSERT_NEAR(static_cast<double>(grad[i]), exact.grad[i], 2e-4 * static_cast<double>(y[i]))
            << where;
        ASSERT_NEAR(static_cast<double>(log_grad[i]), exact.log_grad[i], 1e-3) << where;
      }
    }
  }
}

TEST(VectorRows, ExponentialsOfARowComeWithItsGreatestAndTheirSum) {
  for (const Instructions by : vector_instructions()) {
    for (const std::size_t count : kRowLengths) {
      const std::string where = where_of_rows(count, by);
      Floats x = numbers(count, 8);
      x[1] = -kInfinity;
      Floats y(count);
      float greatest = 0;
      double sum = 0;
      ASSERT_TRUE(vectorized::exponentials(x.data(), y.data(), count, greatest, sum, by)) << where;
      ASSERT_EQ(greatest, *std::max_element(x.begin(), x.end())) << where;
      std::vector<double> exact;
      double exact_sum = 0;
      for (const float each : x) {
        exact.push_back(std::exp(static_cast<double>(each) - static_cast<double>(greatest)));
        exact_sum += exact.back();
      }
      ASSERT_EQ(y[1], 0) << where;
      expect_close("exponentials, " + where, y, exact, 48);
      ASSERT_NEAR(sum, exact_sum, 1e-6 * exact_sum) << where;
    }
  }
}

TEST(VectorRows, ANaNOrAnInfinityTakesItsRowAlone) {
  constexpr std::size_t kCount = 37;
  for (const Instructions by : vector_instructions()) {
    for (const std::size_t place : {std::size_t{0}, std::size_t{20}, std::size_t{36}}) {
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity}) {
        Floats x = numbers(kRows * kCount, 3);
        x[kCount + place] = bad;
        Floats y(x.size());
        ASSERT_TRUE(vectorized::softmax(x.data(), y.data(), kRows, kCount, by));
        for (std::size_t i = 0; i < y.size(); ++i) {
          ASSERT_EQ(std::isnan(y[i]), i / kCount == 1) << i << " of " << where_of_rows(kCount, by);
        }
      }
    }
  }
}

double normal(double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }

TEST(VectorRows, GeluIsWithinSomeUnitsOfTheFormula) {
  Floats x;
  for (float at = -16; at < 16; at += 0.003F) x.push_back(at);
  const Floats g(x.size(), 1);
  std::vector<double> exact, exact_grad;
  for (const float at : x) {
    const auto wide = static_cast<double>(at);
    const double density = std::exp(-wide * wide / 2) * 0.39894228040143267794;
    exact.push_back(wide * normal(wide));
    exact_grad.push_back(normal(wide) + wide * density);
  }
  for (const Instructions by : vector_instructions()) {
    Floats y(x.size()), grad(x.size());
    ASSERT_TRUE(vectorized::gelu(x.data(), y.data(), x.size(), by));
    ASSERT_TRUE(vectorized::gelu_grad(g.data(), x.data(), grad.data(), x.size(), by));
    for (std::size_t i = 0; i < x.size(); ++i) {
      // exp(−x²/2) takes a rounded square, whose error grows with it.
      const double units = 8 + static_cast<double>(x[i] * x[i]) / (x[i] < 0 ? 1 : 16);
      const double error = std::abs(static_cast<double>(y[i]) - exact[i]);
      ASSERT_LE(error, units * 0x1p-24 * std::abs(exact[i]) + 1e-43) << x[i] << ": " << y[i];
      ASSERT_NEAR(static_cast<double>(grad[i]), exact_grad[i], 4e-7) << x[i];
    }
  }
}

TEST(VectorRows, GeluGivesWhatItShouldAtTheLimits) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Floats x{0, -0.0F, kInfinity, -kInfinity, nan, 1e30F, -1e30F};
  const Floats g(x.size(), 1);
  for (const Instructions by : vector_instructions()) {
    Floats y(x.size()), grad(x.size());
    ASSERT_TRUE(vectorized::gelu(x.data(), y.data(), x.size(), by));
    ASSERT_TRUE(vectorized::gelu_grad(g.data(), x.data(), grad.data(), x.size(), by));
    EXPECT_EQ(y[0], 0);
    EXPECT_TRUE(y[1] == 0 && std::signbit(y[1]));
    EXPECT_EQ(y[2], kInfinity);
    EXPECT_TRUE(std::isnan(y[3]) && std::isnan(y[4]));  // −∞ · 0, as in torch
    EXPECT_EQ(y[5], 1e30F);
    EXPECT_EQ(y[6], 0);
    EXPECT_NEAR(grad[0], 0.5F, 1e-7F);
    EXPECT_TRUE(std::isnan(grad[4]));
    EXPECT_EQ(grad[5], 1);
    EXPECT_EQ(grad[6], 0);
  }
}

TEST(VectorRows, GeluGivesTheSameBitsInEveryPlaceAndInPlace) {
  const Floats x = numbers(70, 4);
  const Floats g = numbers(70, 5);
  for (const Instructions by : vector_instructions()) {
    Floats y(x.size()), grad(x.size());
    ASSERT_TRUE(vectorized::gelu(x.data(), y.data(), x.size(), by));
    ASSERT_TRUE(vectorized::gelu_grad(g.data(), x.data(), grad.data(), x.size(), by));
    for (std::size_t begin = 0; begin < x.size(); begin += 3) {
      for (std::size_t n = 0; begin + n <= x.size(); ++n) {
        Floats in_place = x;
        ASSERT_TRUE(vectorized::gelu(&in_place[begin], &in_place[begin], n, by));
        Floats gradient_in_place = g;
        float* const to = &gradient_in_place[begin];
        ASSERT_TRUE(vectorized::gelu_grad(to, &x[begin], to, n, by));
        for (std::size_t i = 0; i < x.size(); ++i) {
          const bool inside = i >= begin && i < begin + n;
          ASSERT_EQ(in_place[i], inside ? y[i] : x[i]) << i << " of " << n << " from " << begin;
          ASSERT_EQ(gradient_in_place[i], inside ? grad[i] : g[i]) << i;
        }
      }
    }
  }
}

TEST(VectorRows, ColumnsAreSummed) {
  constexpr std::size_t kMany = 27;  // no multiple of the rows that are taken together
  for (const Instructions by : vector_instructions()) {
    for (const std::size_t count : kRowLengths) {
      const Floats x = numbers(kMany * count, 6);
      Floats sums(count);
      ASSERT_TRUE(vectorized::column_sums(x.data(), sums.data(), kMany, count, by));
      for (std::size_t c = 0; c < count; ++c) {
        double exact = 0;
        for (std::size_t row = 0; row < kMany; ++row) {
          exact += static_cast<double>(x[row * count + c]);
        }
        ASSERT_NEAR(static_cast<double>(sums[c]), exact, 1e-4) << where_of_rows(count, by);
      }
    }
  }
}

TEST(VectorRows, ExponentialsOfDifferencesAreTakenInPlaceAndNothingElseIsWritten) {
  const Floats x = numbers(70, 7);
  constexpr float kShift = 20;
  for (const Instructions by : vector_instructions()) {
    for (std::size_t n = 0; n <= x.size(); ++n) {
      Floats y = x;
      y[0] = n > 0 ? -kInfinity : y[0];
      ASSERT_TRUE(vectorized::exp_minus(y.data(), n, kShift, by));
      for (std::size_t i = n > 0; i < x.size(); ++i) {
        const double exact = std::exp(static_cast<double>(x[i]) - static_cast<double>(kShift));
        // The difference is rounded, and is at most 40.
        const double error = std::abs(static_cast<double>(y[i]) - exact);
        ASSERT_TRUE(i < n ? error <= 48 * 0x1p-24 * exact : y[i] == x[i]) << i << " of " << n;
      }
      ASSERT_TRUE(n == 0 || y[0] == 0);
    }
  }
}

TEST(VectorRows, ShortRowsAndMachinesWithoutVectorsAreLeftToTheCaller) {
  const Floats x(32, 1);
  Floats y(32, 7);
  EXPECT_FALSE(vectorized::softmax(x.data(), y.data(), 2, 15));
  EXPECT_FALSE(vectorized::softmax(x.data(), y.data(), 2, 16, Instructions::scalar));
  EXPECT_FALSE(vectorized::gelu(x.data(), y.data(), 32, Instructions::scalar));
  EXPECT_EQ(y, Floats(32, 7));
}

}  // namespace vector_rows_test
}  // namespace lockstep
