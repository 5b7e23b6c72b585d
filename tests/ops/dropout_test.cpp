// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/dropout.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/random.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/gradcheck.hpp"
#include "support/varied.hpp"

namespace lockstep {
namespace dropout_test {

using testing::expect_error;
using testing::gradcheck;
using testing::gradgradcheck;
using testing::varied_leaf;

std::vector<float> ones_through(double p, const Shape& shape = {4000},
                                Device device = Device("cpu:0")) {
  return dropout(ones(shape, {.device = device}), p).to_vector<float>();
}

TEST(Dropout, DropsTheShareAskedForAndKeepsTheMean) {
  manual_seed(5);
  for (const double p : {0.1, 0.5, 0.75}) {
    std::size_t dropped = 0;
    const float kept = static_cast<float>(1 / (1 - p));
    for (const float value : ones_through(p)) {
      EXPECT_TRUE(value == 0 || value == kept) << value;
      if (value == 0) ++dropped;
    }
    EXPECT_NEAR(static_cast<double>(dropped) / 4000, p, 0.03);
  }
}

TEST(Dropout, TheSeedTheDeviceAndTheCallDecide) {
  manual_seed(1);
  const std::vector<float> first = ones_through(0.5);
  const std::vector<float> second = ones_through(0.5);
  const std::vector<float> elsewhere = ones_through(0.5, {4000}, "cpu:1");
  EXPECT_NE(first, second);
  EXPECT_NE(first, elsewhere);
  manual_seed(1);
  EXPECT_EQ(ones_through(0.5, {4000}, "cpu:1"), elsewhere) << "devices do not take turns";
  EXPECT_EQ(ones_through(0.5), first);
  EXPECT_EQ(ones_through(0.5), second);
  manual_seed(2);
  EXPECT_NE(ones_through(0.5), first);
}

TEST(Dropout, NumbersFollowOneAnotherWhateverTheSizes) {
  manual_seed(1);
  std::vector<float> parts = ones_through(0.5, {10, 7});
  const std::vector<float> rest = ones_through(0.5, {30});
  parts.insert(parts.end(), rest.begin(), rest.end());
  manual_seed(1);
  EXPECT_EQ(ones_through(0.5, {100}), parts);
}

TEST(Dropout, ReplicasHaveSequencesOfTheirOwn) {
  detail::DeviceRandom random;
  const detail::RandomRange zero = random.take("cpu:0", 0, 10);
  const detail::RandomRange one = random.take("cpu:0", 1, 10);
  EXPECT_NE(zero.key, one.key);
  EXPECT_EQ(one.first, 0U);
  EXPECT_EQ(random.take("cpu:0", 0, 1).first, 10U);
}

TEST(Dropout, AtTheEndsOfItsRangeNothingIsDrawn) {
  const Tensor x = ones({3});
  EXPECT_TRUE(dropout(x, 0).is_same(x));
  EXPECT_TRUE(dropout(x, 0.5, false).is_same(x));
  EXPECT_EQ(ones_through(1), std::vector<float>(4000, 0));
}

TEST(Dropout, TheGradientPassesWhereTheElementDid) {
  manual_seed(3);
  const Tensor x = ones({50}, {.dtype = Dtype::f64, .device = "cpu:0"}).requires_grad_();
  const Tensor y = dropout(x, 0.25);
  y.backward(ones({50}, y.options()));
  EXPECT_EQ(x.grad().to_vector<double>(), y.to_vector<double>());
}

TEST(Dropout, HasDerivativesOfAnyOrder) {
  const auto f = [](const Tensor& x) {
    manual_seed(3);
    return dropout(x * x, 0.5);
  };
  EXPECT_TRUE(gradcheck(f, {varied_leaf({4, 5})}));
  EXPECT_TRUE(gradgradcheck(f, {varied_leaf({4, 5})}));
}

TEST(Dropout, AStridedTensorLosesTheSameElements) {
  manual_seed(4);
  const std::vector<float> y = ones_through(0.5, {6, 5});
  manual_seed(4);
  const Tensor strided = ones({5, 6}, {.device = "cpu:0"}).t();
  EXPECT_EQ(dropout(strided, 0.5).to_vector<float>(), y);
  manual_seed(4);
  const Tensor half = ones({6, 5}, {.dtype = Dtype::f16, .device = "cpu:0"});
  EXPECT_EQ(dropout(half, 0.5).to(Dtype::f32).to_vector<float>(), y);
}

TEST(Dropout, RefusesWhatIsNoProbability) {
  for (const double p : {-0.1, 1.1, static_cast<double>(NAN)}) {
    expect_error<ValueError>([&] { dropout(ones({2}), p); },
                             {"dropout probability has to be between 0 and 1, but got"});
  }
  expect_error<DtypeError>([] { dropout(arange(3)); }, {"dropout", "i64"});
}

}  // namespace dropout_test
}  // namespace lockstep
