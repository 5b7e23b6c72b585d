// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/streams.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/optim/clip_grad.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/sparse.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "optim/parameters.hpp"
#include "support/expect_error.hpp"
#include "support/gate.hpp"

namespace lockstep {
namespace clip_grad_test {

using testing::give_gradient;
using testing::make_parameter;
using testing::throws;
using testing::Values;
using testing::values_of;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Gradients (2, 3), (6) on two devices, and a parameter without one: the norm is 7.
std::vector<Parameter> parameters_of_norm_7() {
  const Parameter a = make_parameter({1, 1}, Dtype::f64, "cpu:1");
  const Parameter b = make_parameter({1}, Dtype::f64, "cpu:2");
  give_gradient(a, {2, 3});
  give_gradient(b, {6});
  return {a, make_parameter({5}), b};
}

TEST(ClipGradNorm, ScalesAllGradientsByOneFactor) {
  const auto list = parameters_of_norm_7();
  const Tensor gradient = list[0].grad();
  EXPECT_DOUBLE_EQ(optim::clip_grad_norm_(list, 3.5), 7);
  const double factor = 3.5 / (7 + 1e-6);
  EXPECT_EQ(values_of(list[0].grad()), (Values{2 * factor, 3 * factor}));
  EXPECT_EQ(values_of(list[2].grad()), (Values{6 * factor}));
  EXPECT_FALSE(list[1].grad().defined());
  EXPECT_TRUE(list[0].grad().is_same(gradient)) << "in place";
}

TEST(ClipGradNorm, TakesWhatOptimisersTake) {
  const auto list = parameters_of_norm_7();
  const std::vector<Named<Parameter>> named = {{"a", list[0]}, {"b", list[2]}};
  EXPECT_DOUBLE_EQ(optim::clip_grad_norm_(named, 10), 7);
  EXPECT_DOUBLE_EQ(optim::clip_grad_norm_({list[0], list[2]}, 10), 7);
}

TEST(ClipGradNorm, ScalesGradientsInHalfPrecision) {
  const Parameter a = make_parameter({1, 1});
  const Parameter b = make_parameter({1}, Dtype::bf16);
  const Parameter c = make_parameter({1}, Dtype::f16);
  give_gradient(a, {2, 3});
  for (const Parameter& half : {b, c}) half.set_grad(tensor({6.0}).to(half.dtype()));
  const Tensor gradient = b.grad();
  EXPECT_DOUBLE_EQ(optim::clip_grad_norm_({a, b}, 3.5), 7);
  EXPECT_EQ(gradient.item(), 3);
  EXPECT_NEAR(a.grad().sum().item(), 2.5, 1e-5);
  optim::clip_grad_norm_({c}, 1.5);
  EXPECT_EQ(c.grad().item(), 1.5);
  EXPECT_EQ(c.grad().dtype(), Dtype::f16);
}

TEST(ClipGradNorm, ScalesAGradientWithStridesInPlace) {
  const Parameter parameter{zeros({2, 2}, {.dtype = Dtype::f64})};
  const Tensor gradient = transpose(tensor({2.0, 0.0, 4.0, 4.0}).reshape({2, 2}), 0, 1);
  parameter.set_grad(gradient);
  EXPECT_DOUBLE_EQ(optim::clip_grad_norm_(std::vector<Parameter>{parameter}, 3), 6);
  EXPECT_TRUE(parameter.grad().is_same(gradient));
  EXPECT_NEAR(gradient.sum().item(), 5, 1e-5);
}

TEST(ClipGradNorm, ScalesElementsThatAreOneAnotherOnce) {
  const Parameter a = make_parameter({1}, Dtype::f64);
  const Parameter b = make_parameter({1, 1}, Dtype::f64);
  const Parameter c = make_parameter({1, 1}, Dtype::f64);
  give_gradient(a, {2});
  b.set_grad(expand(full({1}, 4, {.dtype = Dtype::f64}), {2}));
  c.set_grad(b.grad());
  const std::vector<Parameter> list = {a, b, c};
  EXPECT_DOUBLE_EQ(optim::clip_grad_norm_(list, 1), std::sqrt(4 + 4 * 16));
  EXPECT_NEAR(optim::clip_grad_norm_(list, 1), 1, 1e-6);
}

TEST(ClipGradNorm, ScalesASparseGradientOfTwoParametersOnce) {
  const Parameter a{zeros({3, 1}, {.dtype = Dtype::f64})};
  const Parameter b{zeros({3, 1}, {.dtype = Dtype::f64})};
  const Tensor values = full({1, 1}, 4, {.dtype = Dtype::f64});
  for (const Tensor& gradient :
       {sparse_coo_tensor(from_values<std::int64_t>({1}, {1, 1}), values, {3, 1}),
        sparse_coo_tensor(from_values<std::int64_t>({1}, {1, 1}), values, {3, 1}).coalesce()}) {
    a.set_grad(gradient);
    b.set_grad(gradient);
    EXPECT_DOUBLE_EQ(optim::clip_grad_norm_(std::vector<Parameter>{a, b}, 1), std::sqrt(2.0) * 4);
    EXPECT_NEAR(a.grad().to_dense().sum().item(), 1 / std::sqrt(2.0), 1e-6);
    EXPECT_NEAR(b.grad().to_dense().sum().item(), 1 / std::sqrt(2.0), 1e-6);
  }
}

TEST(ClipGradNorm, LeavesShorterGradientsAlone) {
  const auto list = parameters_of_norm_7();
  EXPECT_DOUBLE_EQ(optim::clip_grad_norm_(list, 7.1), 7);
  EXPECT_DOUBLE_EQ(optim::clip_grad_norm_(list, kInfinity), 7);
  EXPECT_EQ(values_of(list[0].grad()), (Values{2, 3}));
}

TEST(ClipGradNorm, SumsInDouble) {
  const Parameter parameter = make_parameter({0, 0}, Dtype::f32);
  give_gradient(parameter, {1e30, 1e30});
  const double big = static_cast<double>(1e30F);
  EXPECT_DOUBLE_EQ(optim::clip_grad_norm_(std::vector{parameter}, kInfinity),
                   std::sqrt(2 * big * big));
}

TEST(ClipGradNorm, WithoutGradientsTheNormIsZero) {
  EXPECT_EQ(optim::clip_grad_norm_(std::vector{make_parameter({1})}, 1), 0);
  EXPECT_EQ(optim::clip_grad_norm_(std::vector<Tensor>{}, 1), 0);
}

TEST(ClipGradNorm, AMaximumOfZeroMakesThemZero) {
  const auto list = parameters_of_norm_7();
  optim::clip_grad_norm_(list, 0);
  EXPECT_EQ(values_of(list[0].grad()), (Values{0, 0}));
}

TEST(ClipGradNorm, WaitsForWhatTheCurrentStreamHolds) {
  const Stream side = pool_stream("cpu:0");
  const testing::Queued queued({side});
  testing::Gate gate;
  const Parameter parameter = make_parameter({0}, Dtype::f64, "cpu:0");
  give_gradient(parameter, {0});
  gate.hold(side);
  {
    const StreamGuard guard(side);
    parameter.grad().fill_(7);
  }
  double norm = 0;
  EXPECT_TRUE(testing::waits_for(
      gate, side, [&] { norm = optim::clip_grad_norm_(std::vector{parameter}, 3.5); }));
  EXPECT_EQ(norm, 7);
  const StreamGuard guard(side);
  EXPECT_EQ(values_of(parameter.grad()), (Values{7 * (3.5 / (7 + 1e-6))}));
}

TEST(ClipGradNorm, RefusesANormThatIsNotFiniteIfAsked) {
  const Parameter parameter = make_parameter({0, 0});
  give_gradient(parameter, {1, kInfinity});
  const std::vector list{parameter};
  EXPECT_TRUE(throws<ValueError>([&] { optim::clip_grad_norm_(list, 1, true); }, "inf"));
  EXPECT_EQ(values_of(parameter.grad()), (Values{1, kInfinity}));
  EXPECT_EQ(optim::clip_grad_norm_(list, 1), kInfinity);
  EXPECT_EQ(values_of(parameter.grad())[0], 0);
  EXPECT_TRUE(std::isnan(values_of(parameter.grad())[1]));
}

TEST(ClipGradNorm, RefusesAMaximumBelowZero) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double max_norm : {-1.0, nan}) {
    EXPECT_TRUE(throws<ValueError>(
        [&] { optim::clip_grad_norm_(parameters_of_norm_7(), max_norm); }, "max_norm"));
  }
}

}  // namespace clip_grad_test
}  // namespace lockstep
