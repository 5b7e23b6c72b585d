// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/batch_norm.hpp>
#include <lockstep/ops/channel_norm.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/gradcheck.hpp"
#include "support/varied.hpp"

namespace lockstep {
namespace batch_norm_test {

using testing::all_close;
using testing::expect_error;
using testing::gradcheck;
using testing::gradgradcheck;
using testing::varied;
using testing::varied_leaf;

using Values = std::vector<double>;

Tensor f64(const Values& values, const Shape& shape) {
  return from_values(values, shape, Device("cpu:0"));
}

// The formula of torch's documentation, channel by channel.
Values by_formula(const Tensor& x, const Values& weight, const Values& bias, double eps) {
  Values y = x.to_vector<double>();
  const auto channels = static_cast<std::size_t>(x.size(1));
  const std::size_t inner = y.size() / static_cast<std::size_t>(x.size(0)) / channels;
  for (std::size_t c = 0; c < channels; ++c) {
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < y.size(); ++i) {
      if (i / inner % channels == c) places.push_back(i);
    }
    const auto count = static_cast<double>(places.size());
    double mean = 0;
    double var = 0;
    for (const std::size_t i : places) mean += y[i] / count;
    for (const std::size_t i : places) var += (y[i] - mean) * (y[i] - mean) / count;
    for (const std::size_t i : places) {
      y[i] = (y[i] - mean) / std::sqrt(var + eps) * weight[c] + bias[c];
    }
  }
  return y;
}

TEST(BatchNorm, NormalisesEachChannelOfEveryShape) {
  const Values weight = {2, -1, 0.5};
  const Values bias = {10, 20, 30};
  for (const Shape& shape : {Shape{5, 3}, Shape{2, 3, 4}, Shape{2, 3, 3, 5}, Shape{1, 3, 2}}) {
    const Tensor x = varied(shape);
    const Tensor y = batch_norm(x, {}, {}, f64(weight, {3}), f64(bias, {3}), true, 0.1, 1e-3);
    EXPECT_TRUE(all_close(y, f64(by_formula(x, weight, bias, 1e-3), shape), 1e-12)) << shape;
    EXPECT_TRUE(all_close(batch_norm(x, {}, {}, {}, {}, true),
                          f64(by_formula(x, {1, 1, 1}, {0, 0, 0}, 1e-5), shape), 1e-12))
        << shape;
  }
}

TEST(BatchNorm, ChannelsBeyondOneBlockAreSummedToo) {
  const Tensor x = varied({3, 130});
  EXPECT_TRUE(all_close(batch_norm(x, {}, {}, {}, {}, true),
                        f64(by_formula(x, Values(130, 1), Values(130, 0), 1e-5), {3, 130}), 1e-12));
}

TEST(BatchNorm, TakesWhatIsNotContiguous) {
  const Tensor x = varied({4, 3, 5});
  const Tensor y = batch_norm(x, {}, {}, {}, {}, true);
  const Tensor strided = varied({4, 3, 5}).transpose(1, 2).contiguous().transpose(1, 2);
  ASSERT_FALSE(strided.is_contiguous());
  EXPECT_EQ(batch_norm(strided, {}, {}, {}, {}, true).to_vector<double>(), y.to_vector<double>());
}

// Channel 0 holds 1, 2, 6: mean 3, variance 14/3, unbiased 7; channel 1 holds 0, 0, 3.
TEST(BatchNorm, RunningStatisticsMoveByTheMomentum) {
  const Tensor x = f64({1, 0, 2, 0, 6, 3}, {3, 2}).requires_grad_();
  const Tensor mean = f64({0, 10}, {2});
  const Tensor var = f64({1, 1}, {2});
  batch_norm(x, mean, var, {}, {}, true, 0.25);
  EXPECT_EQ(mean.to_vector<double>(), (Values{0.75, 7.75}));
  EXPECT_EQ(var.to_vector<double>(), (Values{0.75 + 7 * 0.25, 0.75 + 3 * 0.25}));
  EXPECT_FALSE(mean.requires_grad() || var.requires_grad());
}

TEST(BatchNorm, RunningStatisticsMayBeStrided) {
  const Tensor x = f64({1, 0, 2, 0, 6, 3}, {3, 2});
  const Tensor both = f64({0, 1, 10, 1}, {2, 2});  // a mean and a variance a row
  const Tensor mean = select(both, 1, 0);
  ASSERT_FALSE(mean.is_contiguous());
  batch_norm(x, mean, select(both, 1, 1), {}, {}, true, 0.25);
  EXPECT_EQ(both.to_vector<double>(), (Values{0.75, 2.5, 7.75, 1.5}));
}

TEST(BatchNorm, MovingTheRunningStatisticsCountsAsAChange) {
  const Tensor mean = f64({0, 0}, {2});
  const Tensor var = f64({1, 1}, {2});
  const std::uint64_t version = mean.version();
  batch_norm(varied({3, 2}), mean, var, {}, {}, true);
  EXPECT_GT(mean.version(), version);
  batch_norm(varied({3, 2}), mean, var);
  batch_norm(varied({0, 2}), mean, var, {}, {}, true);
  EXPECT_EQ(mean.version(), var.version()) << "only what changes counts";
}

TEST(BatchNorm, OutsideOfTrainingTheRunningStatisticsAreUsed) {
  const Tensor x = f64({1, 2, 3, 4}, {2, 2});
  const Tensor mean = f64({1, 0}, {2});
  const Tensor var = f64({4, 16}, {2});
  const Tensor y = batch_norm(x, mean, var, f64({3, 1}, {2}), f64({0, 1}, {2}), false, 0.1, 0);
  EXPECT_EQ(y.to_vector<double>(), (Values{0, 1.5, 3, 2}));
  EXPECT_EQ(mean.to_vector<double>(), (Values{1, 0}));
  EXPECT_EQ(batch_norm(varied({1, 2}), mean, var).sizes(), (Shape{1, 2})) << "one row is enough";
  const Tensor weight = f64({3, 1}, {2}).requires_grad_();
  const Tensor recorded = batch_norm(x, mean, var, weight, {}, false, 0.1, 0);
  batch_norm(x, mean, var, {}, {}, true);
  recorded.sum().backward();
  EXPECT_EQ(weight.grad().to_vector<double>(), (Values{1, 1.5})) << "of the mean as it was";
}

TEST(BatchNorm, HasFirstAndSecondDerivatives) {
  const auto train = [](const Tensor& x, const Tensor& weight, const Tensor& bias) {
    return batch_norm(x, {}, {}, weight, bias, true);
  };
  const auto plain = [](const Tensor& x) { return batch_norm(x, {}, {}, {}, {}, true); };
  const auto eval = [](const Tensor& x, const Tensor& weight, const Tensor& bias) {
    return batch_norm(x, f64({0.1, -0.2, 0.3}, {3}), f64({1, 2, 0.5}, {3}), weight, bias);
  };
  for (const Shape& shape : {Shape{5, 3}, Shape{2, 3, 3}, Shape{2, 3, 2, 2}}) {
    const std::vector<Tensor> in = {varied_leaf(shape), varied_leaf({3}, 1), varied_leaf({3}, 2)};
    EXPECT_TRUE(gradcheck(train, in)) << shape;
    EXPECT_TRUE(gradgradcheck(train, in)) << shape;
    EXPECT_TRUE(gradcheck(plain, {in[0]})) << shape;
    EXPECT_TRUE(gradgradcheck(plain, {in[0]})) << shape;
    EXPECT_TRUE(gradcheck(eval, in)) << shape;
    EXPECT_TRUE(gradgradcheck(eval, in)) << shape;
  }
}

// What is not wanted is not computed; and gradients that are recorded are computed in another way.
TEST(BatchNorm, EachGradientIsTheSameWhicheverAreWanted) {
  const auto gradients = [](unsigned wanted, bool recorded) {
    std::vector<Tensor> in = {varied({2, 3, 4}), varied({3}, 1), varied({3}, 2)};
    std::vector<Tensor> leaves;
    for (std::size_t i = 0; i < 3; ++i) {
      if ((wanted >> i & 1) != 0) leaves.push_back(in[i].requires_grad_());
    }
    const Tensor y = batch_norm(in[0], {}, {}, in[1], in[2], true);
    const std::vector<Tensor> found =
        autograd::grad({y}, leaves, {varied({2, 3, 4}, 3)}, recorded, recorded);
    std::vector<Tensor> all(3);
    for (std::size_t i = 0, k = 0; i < 3; ++i) {
      if ((wanted >> i & 1) != 0) all[i] = found[k++];
    }
    return all;
  };
  const std::vector<Tensor> expected = gradients(7, false);
  for (unsigned wanted = 1; wanted < 8; ++wanted) {
    for (const bool recorded : {false, true}) {
      const std::vector<Tensor> some = gradients(wanted, recorded);
      for (std::size_t i = 0; i < 3; ++i) {
        ASSERT_EQ(some[i].defined(), (wanted >> i & 1) != 0) << wanted;
        if (!some[i].defined()) continue;
        EXPECT_TRUE(all_close(some[i], expected[i], 1e-12, 1e-12)) << wanted << ' ' << recorded;
      }
    }
  }
}

TEST(BatchNorm, BackwardNeedsWhatItComputesWithAsItWas) {
  const auto backward = [](const Tensor& x, const Tensor& weight, const Tensor& bias,
                           const Tensor& changed) {
    const Tensor y = batch_norm(x, {}, {}, weight, bias, true);
    changed.mul_(2);
    y.sum().backward();
  };
  const Tensor plain = varied({4, 3});
  const Tensor weight = f64({1, 2, 3}, {3});
  expect_error<AutogradError>(
      [&] {
        backward(varied_leaf({4, 3}), weight, {}, weight);
      },
      {"batch_norm", "[3]", "inplace"});
  expect_error<AutogradError>([&] { backward(plain, varied_leaf({3}), {}, plain); },
                              {"batch_norm", "[4, 3]", "inplace"});
  backward(plain, weight, varied_leaf({3}), weight);
  backward(plain, weight, varied_leaf({3}), plain);
}

TEST(BatchNorm, StatisticsHaveDerivativesOfTheirOwn) {
  const auto moments = [](const Tensor& x) {
    const detail::Moments of_x = detail::channel_moments(x, 1);
    return std::vector<Tensor>{of_x.mean, of_x.var};
  };
  const auto mean = [](const Tensor& x) { return detail::channel_moments(x, 1).mean; };
  const auto var = [](const Tensor& x) { return detail::channel_moments(x, 1).var; };
  EXPECT_TRUE(gradcheck(moments, {varied_leaf({2, 3, 4})}));
  EXPECT_TRUE(gradgradcheck(moments, {varied_leaf({2, 3, 4})}));
  EXPECT_TRUE(gradcheck(mean, {varied_leaf({4, 3})}));
  EXPECT_TRUE(gradgradcheck(var, {varied_leaf({4, 3})}));
}

TEST(BatchNorm, ALargeMeanCostsNoDigits) {
  const Tensor x = from_values(std::vector<float>{10000, 10001, 10002, 10003}, {4, 1});
  const std::vector<float> y = batch_norm(x, {}, {}, {}, {}, true, 0.1, 0).to_vector<float>();
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(y[i], (static_cast<double>(i) - 1.5) / std::sqrt(1.25), 1e-6);
  }
  const Tensor equal = full({4, 1}, 0.1);
  EXPECT_EQ(batch_norm(equal, {}, {}, {}, {}, true).to_vector<float>(), std::vector<float>(4, 0));
}

TEST(BatchNorm, HalfPrecisionIsRoundedOnce) {
  const Tensor x = varied<float>({6, 2}).to(Dtype::bf16);
  const Tensor running_mean = zeros({2}, {.device = "cpu:0"});
  const Tensor running_var = ones({2}, {.device = "cpu:0"});
  const Tensor y = batch_norm(x, running_mean, running_var, {}, {}, true);
  EXPECT_EQ(y.dtype(), Dtype::bf16);
  const Tensor wide = batch_norm(x.to(Dtype::f32), {}, {}, {}, {}, true);
  EXPECT_EQ(y.to(Dtype::f32).to_vector<float>(),
            wide.to(Dtype::bf16).to(Dtype::f32).to_vector<float>());
  EXPECT_EQ(running_mean.dtype(), Dtype::f32);
  EXPECT_NE(running_var.to_vector<float>()[0], 1);
}

TEST(BatchNorm, OneValueHasNoVariance) {
  const auto call = [](const Shape& shape) { batch_norm(varied(shape), {}, {}, {}, {}, true); };
  expect_error<ValueError>(
      [&] {
        call({1, 3});
      },
      {"Expected more than 1 value per channel when training, got input size "
       "[1, 3]"});
  expect_error<ValueError>([&] { call({1, 3, 1, 1}); }, {"[1, 3, 1, 1]"});
  call({1, 3, 2});
}

TEST(BatchNorm, AnEmptyBatchLeavesTheStatistics) {
  const Tensor mean = f64({1, 2}, {2});
  const Tensor var = f64({3, 4}, {2});
  EXPECT_EQ(batch_norm(varied({0, 2, 3}), mean, var, {}, {}, true).sizes(), (Shape{0, 2, 3}));
  EXPECT_EQ(mean.to_vector<double>(), (Values{1, 2}));
  EXPECT_EQ(var.to_vector<double>(), (Values{3, 4}));
}

// Its statistics are not numbers, and may not get into what is zero.
TEST(BatchNorm, AnEmptyBatchHasDerivativesOfZeros) {
  const Tensor x = zeros({0, 2}, Dtype::f64).requires_grad_();
  const Tensor weight = ones({2}, Dtype::f64).requires_grad_();
  const Tensor bias = zeros({2}, Dtype::f64).requires_grad_();
  const Tensor loss = sum(batch_norm(x, {}, {}, weight, bias, true));
  const std::vector<Tensor> first = autograd::grad({loss}, {x, weight, bias}, {}, true, true);
  (loss + sum(first[0]) + sum(first[1]) + sum(first[2])).backward();
  EXPECT_EQ(x.grad().sizes(), Shape({0, 2}));
  EXPECT_EQ(weight.grad().to_vector<double>(), (Values{0, 0}));
  EXPECT_EQ(bias.grad().to_vector<double>(), (Values{0, 0}));
}

TEST(BatchNorm, OfNothingTakesNoTimeForAnySizes) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 62;
  for (const Shape& shape : {Shape{kLarge, 0, 4}, Shape{kLarge, 2, 0}, Shape{kLarge, 2, 0, 1}}) {
    const Tensor x = zeros(shape, {.requires_grad = true});
    const Tensor y = batch_norm(x, {}, {}, {}, {}, true);
    y.sum().backward();
    EXPECT_EQ(x.grad().sizes(), shape);
  }
}

TEST(BatchNorm, NamesWhatDoesNotFit) {
  const Tensor x = varied({4, 3});
  const Tensor two = f64({1, 1}, {2});
  const Tensor three = f64({1, 1, 1}, {3});
  expect_error<ShapeError>([&] { batch_norm(varied({3}), three, three); }, {"batch_norm", "[3]"});
  expect_error<ShapeError>([&] { batch_norm(x, two, three); },
                           {"running_mean", "[3]", "[2]", "[4, 3]"});
  expect_error<ShapeError>([&] { batch_norm(x, three, three, three, two); }, {"bias", "[2]"});
  expect_error<ValueError>([&] { batch_norm(x, {}, {}); }, {"running_mean", "training is false"});
  expect_error<ValueError>([&] { batch_norm(x, three, {}, {}, {}, true); }, {"both or none"});
  expect_error<ValueError>([&] { batch_norm(x, {}, {}, {}, {}, true, 0.1, -1); }, {"eps", "-1"});
  expect_error<ValueError>([&] { batch_norm(x, f64({1}, {1}).expand({3}), three, {}, {}, true); },
                           {"batch_norm", "the same element"});
  expect_error<DtypeError>([&] { batch_norm(x, three, three, ones({3}, {.device = "cpu:0"})); },
                           {"weight", "f32", "f64"});
  expect_error<DeviceError>(
      [&] { batch_norm(x, three, ones({3}, {.dtype = Dtype::f64, .device = "cpu:1"})); },
      {"running_var", "cpu:1", "cpu:0"});
  expect_error<DtypeError>(
      [&] {
        batch_norm(zeros({4, 3}, {.dtype = Dtype::i64}), {}, {}, {}, {}, true);
      },
      {"batch_norm", "i64"});
  const Tensor whole = zeros({3}, {.dtype = Dtype::i64});
  expect_error<DtypeError>([&] { batch_norm(x.to(Dtype::i64), whole, whole); },
                           {"batch_norm", "i64"});
}

}  // namespace batch_norm_test
}  // namespace lockstep
