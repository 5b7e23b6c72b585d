// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/gelu.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "support/gradcheck.hpp"
#include "support/varied.hpp"

namespace lockstep {
namespace gelu_test {

using testing::all_close;
using testing::expect_error;
using testing::gradcheck;
using testing::gradgradcheck;
using testing::varied_leaf;

const std::vector<double> kPlaces = {-8, -2.5, -1, -0.3, 0, 0.2, 0.75170, 1, 3, 9};
const std::vector<GeluApproximation> kBoth = {GeluApproximation::none, GeluApproximation::tanh};

TEST(Gelu, IsWhatItsFormulaSays) {
  const Tensor x = from_values(kPlaces, {10});
  std::vector<double> exact;
  std::vector<double> by_tanh;
  for (const double at : kPlaces) {
    exact.push_back(at * std::erfc(-at / std::sqrt(2.0)) / 2);
    by_tanh.push_back(
        at / (1 + std::exp(-2 * std::sqrt(2 / std::acos(-1.0)) * (at + 0.044715 * at * at * at))));
  }
  EXPECT_TRUE(all_close(gelu(x), from_values(exact, {10}), 1e-12, 1e-15));
  EXPECT_TRUE(
      all_close(gelu(x, GeluApproximation::tanh), from_values(by_tanh, {10}), 1e-12, 1e-15));
}

TEST(Gelu, HasFirstAndSecondDerivatives) {
  for (const GeluApproximation approximate : kBoth) {
    const auto f = [=](const Tensor& x) { return gelu(x, approximate); };
    EXPECT_TRUE(gradcheck(f, {varied_leaf({3, 5})}));
    EXPECT_TRUE(gradgradcheck(f, {varied_leaf({3, 5})}));
    const Tensor places = from_values(kPlaces, {10}).requires_grad_();
    EXPECT_TRUE(gradcheck(f, {places}));
    EXPECT_TRUE(gradgradcheck(f, {places}));
  }
}

TEST(Gelu, HasSecondDerivativesInHalfPrecisionFarFromZero) {
  for (const GeluApproximation approximate : kBoth) {
    const Tensor x = tensor({-300.0F, -40.0F, 40.0F, 300.0F}).to(Dtype::f16).requires_grad_();
    const Tensor y = gelu(x, approximate).sum();
    const Tensor slope = autograd::grad({y}, {x}, {}, {}, true)[0];
    const Tensor curvature = autograd::grad({slope.sum()}, {x})[0];
    EXPECT_EQ(curvature.to(Dtype::f32).to_vector<float>(), (std::vector<float>{0, 0, 0, 0}));
  }
}

// The gradient of a sum is one number that is stretched, and the elements of a column are apart.
TEST(Gelu, GivesTheSameBitsInEveryLayout) {
  const Tensor x = varied_leaf<float>({3, 70}).detach();
  for (const GeluApproximation approximate : kBoth) {
    const auto result_and_gradient = [=](const Tensor& values, const Tensor& grad) {
      const Tensor at = values.detach().requires_grad_();
      const Tensor y = gelu(at, approximate);
      y.backward(grad);
      return std::vector{y.detach(), at.grad()};
    };
    const Tensor ones_in_place = ones(x.sizes(), x.options());
    const auto plain = result_and_gradient(x, ones_in_place);
    const auto stretched = result_and_gradient(x, expand(ones({1}, x.options()), x.sizes()));
    const auto transposed = result_and_gradient(x.t(), ones_in_place.t());
    const auto row = result_and_gradient(x.narrow(0, 1, 1), ones({1, 70}, x.options()));
    for (std::size_t i = 0; i < 2; ++i) {
      const std::vector<float> expected = plain[i].to_vector<float>();
      EXPECT_EQ(stretched[i].to_vector<float>(), expected);
      EXPECT_EQ(transposed[i].t().to_vector<float>(), expected);
      EXPECT_EQ(row[i].to_vector<float>(), plain[i].narrow(0, 1, 1).to_vector<float>());
    }
  }
}

TEST(Gelu, TakesF32AndHalfPrecisionAndInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const GeluApproximation approximate : kBoth) {
    const Tensor x = from_values(std::vector<float>{-100, 0, 1, 100, infinity}, {5});
    const std::vector<float> y = gelu(x, approximate).to_vector<float>();
    EXPECT_EQ(y[0], 0);
    EXPECT_EQ(y[1], 0);
    EXPECT_NEAR(y[2], 0.8413F, 2e-4F);
    EXPECT_EQ(y[3], 100);
    EXPECT_EQ(y[4], infinity);
    EXPECT_EQ(gelu(x.to(Dtype::bf16), approximate).dtype(), Dtype::bf16);
  }
  expect_error<DtypeError>([] { gelu(ones({2}, {.dtype = Dtype::i64})); }, {"gelu", "i64"});
}

}  // namespace gelu_test
}  // namespace lockstep
