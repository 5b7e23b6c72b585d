// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/pointwise.hpp>

#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/tensor/random.hpp>

#include "support/gradcheck.hpp"
#include "support/varied.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <vector>

namespace lockstep {
namespace pointwise_test {

using testing::gradcheck;
using testing::gradgradcheck;

constexpr TensorOptions kLeaf{.dtype = Dtype::f64, .device = {}, .requires_grad = true};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Pointwise, ComputesWhatTheStandardLibraryDoes) {
  const Tensor x = rand({3, 4}, {.dtype = Dtype::f64}, 0.1, 2).t();
  const std::vector<double> in = x.to_vector<double>();
  const auto expect = [&](const Tensor& result, auto function) {
    ASSERT_EQ(result.sizes(), x.sizes());
    const std::vector<double> out = result.to_vector<double>();
    for (std::size_t i = 0; i < in.size(); ++i) EXPECT_DOUBLE_EQ(out[i], function(in[i]));
  };
  expect(exp(x), [](double v) { return std::exp(v); });
  expect(log(x), [](double v) { return std::log(v); });
  expect(sqrt(x), [](double v) { return std::sqrt(v); });
  expect(tanh(x), [](double v) { return std::tanh(v); });
  expect(sigmoid(x), [](double v) { return 1 / (1 + std::exp(-v)); });
  expect(silu(x), [](double v) { return v / (1 + std::exp(-v)); });
  expect(pow(x, 2.5), [](double v) { return std::pow(v, 2.5); });
  expect(square(x), [](double v) { return v * v; });
}

// What torch takes apart, beside -3, which it does not. Lengths of a block and of parts of one.
TEST(Pointwise, PowersByProductsAndRootsAreTorchs) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {0, -0.0F, 1, -1, 3, -3, 1e-20F, 1e30F, kInf, -kInf, kNan, 0.25F};
  const std::map<double, float (*)(float)> powers = {
      {0, [](float) { return 1.0F; }},
      {0.5, [](float v) { return std::sqrt(v); }},
      {1, [](float v) { return v; }},
      {2, [](float v) { return v * v; }},
      {3, [](float v) { return v * v * v; }},
      {-0.5, [](float v) { return 1 / std::sqrt(v); }},
      {-1, [](float v) { return 1 / v; }},
      {-2, [](float v) { return 1 / (v * v); }},
      {-3, [](float v) { return std::pow(v, -3.0F); }}};
  const auto expect = [](float found, float expected) {
    EXPECT_EQ(std::isnan(found), std::isnan(expected));
    if (std::isnan(expected)) return;
    EXPECT_EQ(found, expected);
    EXPECT_EQ(std::signbit(found), std::signbit(expected));
  };
  for (const auto& [exponent, power] : powers) {
    SCOPED_TRACE(exponent);
    const Tensor leaf = expand(tensor(x), {7, 12}).contiguous().requires_grad_();
    const Tensor y = pow(leaf, exponent);
    y.backward(ones(y.sizes()));
    const std::vector<float> found = y.to_vector<float>();
    const std::vector<float> slopes = leaf.grad().to_vector<float>();
    for (std::size_t i = 0; i < found.size(); ++i) {
      SCOPED_TRACE(x[i % x.size()]);
      expect(found[i], power(x[i % x.size()]));
      if (exponent == 0) {
        expect(slopes[i], 0);
      } else if (powers.contains(exponent - 1)) {
        const float of_exponent = powers.at(exponent - 1)(x[i % x.size()]);
        expect(slopes[i], of_exponent * static_cast<float>(exponent));
      }
    }
  }
  EXPECT_TRUE(std::isnan(pow(tensor({-HUGE_VAL}), 0.5).item<double>()));
  EXPECT_TRUE(std::signbit(pow(tensor({-0.0}), 0.5).item<double>()));
  EXPECT_EQ(pow(tensor({3.0F}).to(Dtype::bf16), 3).to(Dtype::f32).item<float>(), 27);
}

// In f32 these are 1 and 2, and less 1 they would be neither 0 nor 1.
TEST(Pointwise, GradientsOfPowersAreOfTheExponentThatWasComputedWith) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16}) {
    for (const auto& [exponent, slope] :
         std::map<double, float>{{1 + 0x1p-52, 1}, {2 + 1e-7, -4}}) {
      const Tensor x = full({3}, -2, dtype).requires_grad_();
      pow(x, exponent).sum().backward();
      EXPECT_EQ(x.grad().to(Dtype::f32).to_vector<float>(), std::vector<float>(3, slope));
    }
  }
}

TEST(Pointwise, SignsAndNans) {
  const Tensor x = tensor({-2.0F, 0.0F, 3.0F});
  EXPECT_EQ(relu(x).to_vector<float>(), (std::vector<float>{0, 0, 3}));
  EXPECT_EQ(abs(x).to_vector<float>(), (std::vector<float>{2, 0, 3}));
  EXPECT_TRUE(std::isnan(relu(tensor({kNan})).item<float>()));
  EXPECT_EQ(sigmoid(tensor({-200.0F, 200.0F})).to_vector<float>(), (std::vector<float>{0, 1}));
}

TEST(Pointwise, SomeTakeIntegers) {
  const Tensor x = tensor<std::int64_t>({-3, 0, 4});
  EXPECT_EQ(relu(x).to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 0, 4}));
  EXPECT_EQ(abs(x).to_vector<std::int64_t>(), (std::vector<std::int64_t>{3, 0, 4}));
  EXPECT_EQ(square(x).to_vector<std::int64_t>(), (std::vector<std::int64_t>{9, 0, 16}));
  EXPECT_THROW((void)exp(x), DtypeError);
  EXPECT_THROW((void)pow(x, 2), DtypeError);
  EXPECT_THROW((void)relu(Tensor()), ValueError);
}

TEST(Pointwise, GradientsAgreeWithFiniteDifferences) {
  const auto smooth = [](const Tensor& x) {
    return std::vector<Tensor>{exp(x),      log(x),     sqrt(x),   tanh(x),   sigmoid(x), square(x),
                               pow(x, 2.5), pow(x, -1), pow(x, 0), pow(x, 1), silu(x),    silu(-x)};
  };
  const std::vector<Tensor> positive = {rand({2, 3}, kLeaf, 0.5, 2)};
  EXPECT_TRUE(gradcheck(smooth, positive));
  EXPECT_TRUE(gradgradcheck(smooth, positive));

  const auto kinked = [](const Tensor& x) {
    return std::vector<Tensor>{relu(x), abs(x), clamp(x, -1, 1), clamp(x, 0), leaky_relu(x, 0.2)};
  };
  const std::vector<Tensor> mixed = {tensor<double>({-2, -0.5, 0.25, 3}).requires_grad_()};
  EXPECT_TRUE(gradcheck(kinked, mixed));
  EXPECT_TRUE(gradgradcheck(
      [](const Tensor& x) {
        return relu(x) * relu(x) + abs(x) * x + clamp(x, -1, 1) * x + leaky_relu(x) * x;
      },
      mixed));
}

TEST(Pointwise, GradientsAtKinksAreTorchs) {
  const Tensor x = tensor({0.0F, kNan}).requires_grad_();
  relu(x).backward(tensor({1.0F, 1.0F}));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 1}));
  const Tensor y = tensor({0.0F}).requires_grad_();
  abs(y).backward();
  EXPECT_EQ(y.grad().item<float>(), 0);
  const Tensor z = tensor({0.0F}).requires_grad_();
  pow(z, 0).backward();
  EXPECT_EQ(z.grad().item<float>(), 0);
}

TEST(Pointwise, LeakyReluScalesWhatIsNotPositive) {
  const Tensor x = tensor({-2.0F, 0.0F, 3.0F}).requires_grad_();
  EXPECT_EQ(leaky_relu(x, 0.5).to_vector<float>(), (std::vector<float>{-1, 0, 3}));
  EXPECT_EQ(leaky_relu(x).to_vector<float>(), (std::vector<float>{-2 * 0.01F, 0, 3}));
  leaky_relu(x, 0.5).backward(full({3}, 4));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{2, 2, 4}));
  EXPECT_TRUE(std::isnan(leaky_relu(tensor({kNan})).item()));
  EXPECT_EQ(leaky_relu(x.to(Dtype::bf16), 0.5).dtype(), Dtype::bf16);
  EXPECT_THROW((void)leaky_relu(arange(2)), DtypeError);
  for (const double slope : std::vector<double>{kNan, INFINITY, 1e300}) {
    EXPECT_THROW((void)leaky_relu(x, slope), ValueError);
  }
  EXPECT_EQ(leaky_relu(x.to(Dtype::f64), 1e300).to_vector<double>(),
            (std::vector<double>{-2e300, 0, 3}));
}

// Blocks of any length, and what is recorded and what is not.
TEST(Pointwise, SiluOfManyElementsHasOneGradientRecordedOrNot) {
  const Tensor x = rand({3, 67}, {.dtype = Dtype::f64}, -5, 5).requires_grad_();
  const std::vector<double> in = x.to_vector<double>();
  silu(x).sum().backward();
  const std::vector<double> grads = x.grad().to_vector<double>();
  x.set_grad({});
  silu(x).sum().backward({}, false, true);
  const std::vector<double> recorded = x.grad().to_vector<double>();
  x.set_grad({});  // its graph leads back to x
  const std::vector<double> out = silu(x).to_vector<double>();
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double part = 1 / (1 + std::exp(-in[i]));
    EXPECT_NEAR(out[i], in[i] * part, 1e-14);
    EXPECT_NEAR(grads[i], part * (1 + in[i] * (1 - part)), 1e-14);
    EXPECT_NEAR(recorded[i], grads[i], 1e-14);
  }
  EXPECT_EQ(silu(x.to(Dtype::f16)).dtype(), Dtype::f16);
}

TEST(Pointwise, ClampKeepsWhatLiesBetweenTheBounds) {
  const Tensor x = tensor({-2.0F, -1.0F, 0.5F, 2.0F, 3.0F, kNan}).requires_grad_();
  const Tensor y = clamp(x, -1, 2);
  const std::vector<float> values = y.to_vector<float>();
  EXPECT_EQ(std::vector<float>(values.begin(), values.begin() + 5),
            (std::vector<float>{-1, -1, 0.5, 2, 2}));
  EXPECT_TRUE(std::isnan(values[5]));
  y.backward(full({6}, 3));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 0, 3, 0, 0, 0}));
  EXPECT_EQ(clamp(x.narrow(0, 0, 5), {}, 0).to_vector<float>(),
            (std::vector<float>{-2, -1, 0, 0, 0}));
  EXPECT_EQ(clamp(x.narrow(0, 0, 5), 0).to_vector<float>(), (std::vector<float>{0, 0, 0.5, 2, 3}));
  EXPECT_EQ(clamp(x.narrow(0, 0, 2), 2, 1).to_vector<float>(), (std::vector<float>{1, 1}));
  EXPECT_EQ(clamp(x.to(Dtype::f16), 0, 1).dtype(), Dtype::f16);
  EXPECT_EQ(clamp(arange(4), 1, 2).to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{1, 1, 2, 2}));
  EXPECT_EQ(clamp(arange(2), {}, 5).to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 1}));
  EXPECT_THROW((void)clamp(x, {}), ValueError);
  EXPECT_THROW((void)clamp(arange(2), 0.5), DtypeError);
}

// The gradients and values of torch 2.15.
TEST(Pointwise, ClampHasNoGradientOnABoundAndTakesNanForABound) {
  const auto gradient = [](std::optional<Scalar> min, std::optional<Scalar> max) {
    const Tensor x = tensor({-INFINITY, -1.0F, 0.0F, 1.0F, INFINITY, kNan}, "cpu:0");
    clamp(x.requires_grad_(), min, max).backward(ones({6}, {.device = "cpu:0"}));
    return x.grad().to_vector<float>();
  };
  EXPECT_EQ(gradient(-1, 1), (std::vector<float>{0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(gradient(0, {}), (std::vector<float>{0, 0, 0, 1, 1, 0}));
  EXPECT_EQ(gradient({}, 0), (std::vector<float>{1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(gradient(1, -1), (std::vector<float>{0, 0, 0, 0, 0, 0}));
  const Tensor one = ones({1}, {.device = "cpu:0"});
  EXPECT_TRUE(std::isnan(clamp(one, kNan).item()));
  EXPECT_TRUE(std::isnan(clamp(one, {}, kNan).item()));
  EXPECT_TRUE(std::isnan(clamp(one, kNan, 0).item()));
}

// With a device, which may be a GPU, each element's function is another kernel.
TEST(Pointwise, OnADeviceIsLikeOnPlainHostMemory) {
  const Tensor x = testing::varied_leaf({3, 40});
  const auto all = [](const Tensor& v) {
    return std::vector<Tensor>{clamp(v, -0.5, 0.25), leaky_relu(v, 0.3), silu(v)};
  };
  EXPECT_TRUE(gradcheck(all, {x}));
  const std::vector<Tensor> here = all(x.to("cpu").to(Dtype::f32));
  const std::vector<Tensor> there = all(x.to(Dtype::f32));
  for (std::size_t i = 0; i < here.size(); ++i) {
    EXPECT_TRUE(testing::all_close(there[i], here[i], 1e-6)) << i;
  }
  const Tensor integers = arange(4).to("cpu:0");
  EXPECT_EQ(clamp(integers, 1, 2).to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{1, 1, 2, 2}));
  EXPECT_EQ(clamp(integers.to(Dtype::i32), 1).to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{1, 1, 2, 3}));
}

TEST(Pointwise, AChangedResultIsNoticedWhereBackwardNeedsIt) {
  const Tensor x = tensor({1.0F}).requires_grad_();
  const Tensor y = exp(x);
  y.mark_changed();
  EXPECT_THROW(y.backward(), AutogradError);
}

}  // namespace pointwise_test
}  // namespace lockstep
