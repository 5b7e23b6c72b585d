// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/inplace.hpp>

#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/expect_error.hpp"

namespace lockstep {
namespace inplace_test {

using testing::throws;

using Integers = std::vector<std::int64_t>;

TEST(InPlace, ChangesTheTensorAndItsVersion) {
  const Tensor x = ones({3});
  const std::uint64_t before = x.version();
  x.fill_(2);
  EXPECT_GT(x.version(), before);
  x.add_(tensor({1.0F, 2.0F, 3.0F}), 10).mul_(2);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{24, 44, 64}));
  x.copy_(tensor<std::int64_t>({7, 8, 9}));
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{7, 8, 9}));
  EXPECT_EQ(x.zero_().to_vector<float>(), (std::vector<float>{0, 0, 0}));
}

TEST(InPlace, ChangesOnlyTheElementsOfAView) {
  const Tensor x = arange(6).reshape({2, 3});
  const Tensor column = x.narrow(1, 1, 1);
  column.add_(full({2, 1}, 10, {.dtype = Dtype::i64}));
  EXPECT_EQ(x.to_vector<std::int64_t>(), (Integers{0, 11, 2, 3, 14, 5}));
  column.mul_(2);
  EXPECT_EQ(x.to_vector<std::int64_t>(), (Integers{0, 22, 2, 3, 28, 5}));
  column.fill_(-1);
  EXPECT_EQ(x.to_vector<std::int64_t>(), (Integers{0, -1, 2, 3, -1, 5}));
  x.t().copy_(arange(6).reshape({3, 2}));
  EXPECT_EQ(x.to_vector<std::int64_t>(), (Integers{0, 2, 4, 1, 3, 5}));
  column.zero_();
  EXPECT_EQ(x.to_vector<std::int64_t>(), (Integers{0, 0, 4, 1, 0, 5}));
}

TEST(InPlace, SourcesAreStretched) {
  const Tensor x = zeros({2, 2});
  x.copy_(tensor({1.0F, 2.0F}));
  x.add_(scalar_tensor(10.0F));
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{11, 12, 11, 12}));
  EXPECT_THROW(x.add_(zeros({3})), ShapeError);
  EXPECT_THROW(x.copy_(zeros({1, 2, 2})), ShapeError);
  EXPECT_THROW(zeros({1}).add_(zeros({2})), ShapeError);
}

TEST(InPlace, CopyBringsDataFromOtherDevices) {
  const Tensor x = zeros({2, 2}, {.device = "cpu:1"});
  x.narrow(1, 0, 1).copy_(ones({2, 1}, {.dtype = Dtype::f64, .device = "cpu:2"}));
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 0, 1, 0}));
}

TEST(InPlace, KindsThatDoNotFitAreErrors) {
  const Tensor x = zeros({2});
  EXPECT_THROW(x.add_(zeros({2}, {.dtype = Dtype::f64})), DtypeError);
  EXPECT_THROW(x.add_(zeros({2}, {.device = "cpu:0"})), DeviceError);
  EXPECT_THROW(arange(2).mul_(0.5), DtypeError);
  EXPECT_THROW(arange(2).add_(arange(2), 0.5), DtypeError);
  EXPECT_THROW(x.copy_(Tensor()), ValueError);
  EXPECT_THROW(expand(zeros({1}), {3}).fill_(1), ValueError);
}

TEST(InPlace, ChangesThatAGradientWouldMissAreErrors) {
  const Tensor x = ones({2}, {.requires_grad = true});
  const std::string remedy =
      " on a tensor that requires grad is not recorded: do it under NoGradGuard, or out of place";
  EXPECT_TRUE(throws<AutogradError>([&] { x.fill_(0); }, "fill_" + remedy));
  EXPECT_TRUE(throws<AutogradError>([&] { x.mul_(0); }, "mul_" + remedy));
  EXPECT_THROW((x * 2).add_(ones({2})), AutogradError);
  EXPECT_THROW(ones({2}).copy_(x), AutogradError);
  EXPECT_THROW(ones({2}).add_(x), AutogradError);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 1}));
  {
    const NoGradGuard guard;
    x.add_(ones({2}), 2);
  }
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{3, 3}));
}

TEST(InPlace, BackwardNoticesWhatItNeedsUnchanged) {
  const Tensor x = ones({2}, {.requires_grad = true});
  const Tensor factor = ones({2});
  const Tensor needs_factor = sum(x * factor);
  const Tensor needs_none = sum(x + factor);
  factor.zero_();
  EXPECT_TRUE(
      throws<AutogradError>([&] { needs_factor.backward(); },
                            "needed for the gradient of mul has been modified by an inplace",
                            "of shape [2] on cpu is at version 2; expected version 1"));
  needs_none.backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{1, 1}));
}

}  // namespace inplace_test
}  // namespace lockstep
