// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/kernels/layer_norm_kernels.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "support/rows_by_instructions.hpp"

namespace lockstep {
namespace layer_norm_kernels_test {

namespace vectorized = detail::vectorized;
using testing::kRowLengths;
using testing::numbers;
using testing::vector_instructions;
using testing::where_of_rows;
using vectorized::Instructions;
using Floats = std::vector<float>;

constexpr std::size_t kRows = 19;  // rows are taken together, which these are no multiple of
constexpr double kEps = 1e-5;

View<const float> read(const Floats& of) { return {of.data(), of.size()}; }
View<float> written(Floats& to) { return {to.data(), to.size()}; }

double wide(float x) { return static_cast<double>(x); }

struct Exact {
  std::vector<double> y, out, weight_grad, bias_grad;
};

// By the formulas, in double.
Exact exact_rows(const Floats& x, const Floats& g, const Floats& weight, const Floats& bias,
                 std::size_t width) {
  const auto count = static_cast<double>(width);
  const auto factor = [&](std::size_t c) { return weight.empty() ? 1 : wide(weight[c]); };
  Exact exact{{}, {}, std::vector<double>(width), std::vector<double>(width)};
  for (std::size_t first = 0; first < x.size(); first += width) {
    double mean = 0;
    double var = 0;
    for (std::size_t c = 0; c < width; ++c) mean += wide(x[first + c]) / count;
    for (std::size_t c = 0; c < width; ++c) var += std::pow(wide(x[first + c]) - mean, 2) / count;
    const double inverse = 1 / std::sqrt(var + kEps);
    const auto normalised = [&](std::size_t c) { return (wide(x[first + c]) - mean) * inverse; };
    double shift = 0;
    double slope = 0;
    for (std::size_t c = 0; c < width; ++c) {
      const double grad = wide(g[first + c]);
      exact.y.push_back(normalised(c) * factor(c) + (bias.empty() ? 0 : wide(bias[c])));
      shift += grad * factor(c) / count;
      slope += grad * factor(c) * normalised(c) / count;
      exact.weight_grad[c] += grad * normalised(c);
      exact.bias_grad[c] += grad;
    }
    for (std::size_t c = 0; c < width; ++c) {
      exact.out.push_back((wide(g[first + c]) * factor(c) - shift - normalised(c) * slope) *
                          inverse);
    }
  }
  return exact;
}

void expect_near(const char* what, const std::string& where, const Floats& found,
                 const std::vector<double>& exact, double tolerance) {
  for (std::size_t i = 0; i < exact.size(); ++i) {
    ASSERT_NEAR(wide(found[i]), exact[i], tolerance) << what << " at " << i << ", " << where;
  }
}

TEST(LayerNormRows, ValuesAndGradientsAreThoseOfTheFormulas) {
  for (const Instructions by : vector_instructions()) {
    for (const std::size_t width : kRowLengths) {
      for (const bool affine : {false, true}) {
        const std::string where = where_of_rows(width, by) + (affine ? ", affine" : "");
        Floats x = numbers(kRows * width, 2, 1);
        for (std::size_t c = 0; c < width; ++c) x[c] += 100;  // a row far from 0
        const Floats g = numbers(x.size(), 1, 2);
        const Floats weight = affine ? numbers(width, 1, 3) : Floats();
        const Floats bias = affine ? numbers(width, 1, 4) : Floats();
        Floats y(x.size()), out(x.size()), rows(2 * kRows);
        Floats weight_grad(width), bias_grad(width);
        ASSERT_TRUE(vectorized::layer_norm(
            {read(x), read(weight), read(bias), written(y), written(rows), width, kEps}, by));
        ASSERT_TRUE(
            vectorized::layer_norm_grad({read(g), read(x), read(weight), read(rows), written(out),
                                         written(weight_grad), written(bias_grad), width},
                                        by));
        const Exact exact = exact_rows(x, g, weight, bias, width);
        expect_near("value", where, y, exact.y, 1e-5);
        expect_near("gradient", where, out, exact.out, 1e-5);
        expect_near("weight's", where, weight_grad, exact.weight_grad, 5e-5);
        expect_near("bias's", where, bias_grad, exact.bias_grad, 1e-5);
      }
    }
  }
}

TEST(LayerNormRows, GradientsThatNobodyWantsChangeNoOther) {
  for (const Instructions by : vector_instructions()) {
    const std::size_t width = 100;
    const Floats x = numbers(kRows * width, 2, 1);
    const Floats g = numbers(x.size(), 1, 2);
    Floats rows(kRows, 0.25F);
    rows.resize(2 * kRows, 0.75F);
    Floats all[3];
    for (std::size_t wanted = 1; wanted < 8; ++wanted) {
      Floats found[3] = {Floats(x.size()), Floats(width), Floats(width)};
      const auto to = [&](std::size_t i) {
        return wanted >> i & 1 ? written(found[i]) : View<float>{};
      };
      ASSERT_TRUE(vectorized::layer_norm_grad(
          {read(g), read(x), {}, read(rows), to(0), to(1), to(2), width}, by));
      for (std::size_t i = 0; i < 3; ++i) {
        if (to(i).size == 0) continue;
        if (all[i].empty()) all[i] = found[i];
        EXPECT_EQ(found[i], all[i]) << i << " of " << wanted;
      }
    }
  }
}

TEST(LayerNormRows, EqualElementsHaveAVarianceOfZero) {
  for (const Instructions by : vector_instructions()) {
    const Floats x(3 * 45, 0.1F);
    Floats y(x.size()), rows(6);
    ASSERT_TRUE(vectorized::layer_norm({read(x), {}, {}, written(y), written(rows), 45, 1.0}, by));
    EXPECT_EQ(rows, (Floats{0.1F, 0.1F, 0.1F, 1, 1, 1}));
    EXPECT_EQ(y, Floats(x.size()));
  }
}

}  // namespace layer_norm_kernels_test
}  // namespace lockstep
