// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/softmax.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "support/gradcheck.hpp"
#include "support/varied.hpp"

namespace lockstep {
namespace softmax_test {

using testing::all_close;
using testing::expect_error;
using testing::gradcheck;
using testing::gradgradcheck;
using testing::varied;
using testing::varied_leaf;

TEST(Softmax, IsTheShareOfTheExponentials) {
  const Tensor x = tensor<double>({0, std::log(2.0), std::log(5.0)});
  EXPECT_TRUE(all_close(softmax(x, 0), tensor<double>({0.125, 0.25, 0.625}), 1e-14));
  EXPECT_TRUE(all_close(log_softmax(x, -1),
                        tensor<double>({std::log(0.125), std::log(0.25), std::log(0.625)}), 1e-14));
}

TEST(Softmax, GoesAlongAnyDimension) {
  const Tensor x = varied({2, 3, 4});
  for (std::int64_t dim = -3; dim < 3; ++dim) {
    const Tensor y = softmax(x, dim);
    EXPECT_EQ(y.sizes(), x.sizes());
    EXPECT_TRUE(all_close(exp(log_softmax(x, dim)), y, 1e-13));
    const Tensor total = sum(y, {dim});
    EXPECT_TRUE(all_close(total, ones(total.sizes(), total.options()), 1e-14)) << dim;
  }
  EXPECT_EQ(softmax(scalar_tensor(3.0), 0).item<double>(), 1);
  EXPECT_EQ(log_softmax(scalar_tensor(3.0), -1).item<double>(), 0);
  EXPECT_EQ(softmax(varied({0, 3}), 1).sizes(), (Shape{0, 3}));
  EXPECT_EQ(softmax(varied({3, 0}), 1).sizes(), (Shape{3, 0}));
}

TEST(Softmax, DoesNotOverflow) {
  const Tensor x = tensor<float>({1e30F, 1e30F, -1e30F});
  EXPECT_EQ(softmax(x, 0).to_vector<float>(), (std::vector<float>{0.5F, 0.5F, 0}));
  const std::vector<float> logs = log_softmax(tensor<float>({0, -1000}), 0).to_vector<float>();
  EXPECT_EQ(logs, (std::vector<float>{0, -1000}));
  // The logarithm of the sum is small beside the greatest, and must not vanish in it.
  const float big = 16777216;
  EXPECT_FLOAT_EQ(log_softmax(tensor<float>({big, big}), 0).to_vector<float>()[0], -std::log(2.0F));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float value : softmax(tensor<float>({1, nan, 2}), 0).to_vector<float>()) {
    EXPECT_TRUE(std::isnan(value));
  }
}

TEST(Softmax, HasFirstAndSecondDerivatives) {
  for (const std::int64_t dim : {0, 1, 2}) {
    const auto f = [=](const Tensor& x) { return softmax(x, dim); };
    const auto g = [=](const Tensor& x) { return log_softmax(x, dim); };
    const std::vector<Tensor> x = {varied_leaf({2, 3, 2})};
    EXPECT_TRUE(gradcheck(f, x));
    EXPECT_TRUE(gradgradcheck(f, x));
    EXPECT_TRUE(gradcheck(g, x));
    EXPECT_TRUE(gradgradcheck(g, x));
  }
}

TEST(Softmax, RefusesWhatItCannotTake) {
  expect_error<IndexError>([] { softmax(varied({2, 3}), 2); }, {"Dimension out of range", "2"});
  expect_error<DtypeError>([] { softmax(arange(3), 0); }, {"softmax", "i64"});
}

}  // namespace softmax_test
}  // namespace lockstep
