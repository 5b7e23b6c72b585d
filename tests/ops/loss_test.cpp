// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/engine.hpp>
#include <lockstep/backend/host/host_stream.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/cat.hpp>
#include <lockstep/ops/loss.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/softmax.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "support/gradcheck.hpp"
#include "support/varied.hpp"

namespace lockstep {
namespace loss_test {

using testing::all_close;
using testing::expect_error;
using testing::gradcheck;
using testing::gradgradcheck;
using testing::varied;
using testing::varied_leaf;

const Reduction kReductions[] = {Reduction::none, Reduction::mean, Reduction::sum};

Tensor labels(const std::vector<std::int64_t>& values, const Shape& shape) {
  return from_values(values, shape, Device("cpu:0"));
}

struct Case {
  Tensor input, target;
};

std::vector<Case> cases() {
  return {
      {varied_leaf({4, 3}), labels({2, 0, 1, 2}, {4})},
      {varied_leaf({2, 3, 2, 2}), labels({0, 1, 2, 1, 0, 2, 1, 1}, {2, 2, 2})},
      {varied_leaf({5}), labels({3}, {})},
  };
}

TEST(NllLoss, PicksTheNegativeOfTheLabelsElement) {
  const Tensor x = from_values(std::vector<double>{1, 2, 3, 4, 5, 6}, {2, 3}, Device("cpu:0"));
  const Tensor target = labels({2, 0}, {2});
  EXPECT_EQ(nll_loss(x, target, Reduction::none).to_vector<double>(),
            (std::vector<double>{-3, -4}));
  EXPECT_EQ(nll_loss(x, target, Reduction::sum).item<double>(), -7);
  EXPECT_EQ(nll_loss(x, target).item<double>(), -3.5);
}

TEST(CrossEntropy, IsNllLossOfLogSoftmax) {
  for (const Case& c : cases()) {
    for (const Reduction reduction : kReductions) {
      const std::int64_t dim = c.input.dim() == 1 ? 0 : 1;
      EXPECT_TRUE(all_close(cross_entropy(c.input, c.target, reduction),
                            nll_loss(log_softmax(c.input, dim), c.target, reduction), 1e-13))
          << c.input.sizes();
    }
  }
}

// The host takes some pixels at a time.
TEST(CrossEntropy, OfManyPixelsIsNllLossOfLogSoftmax) {
  std::vector<std::int64_t> values(2 * 30 * 31);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int64_t>(i) % 7;
  const Tensor target = labels(values, {2, 30, 31});
  const Tensor x = varied_leaf({2, 7, 30, 31});
  const Tensor y = x.detach().clone().requires_grad_();
  const Tensor loss = cross_entropy(x, target);
  const Tensor expected = nll_loss(log_softmax(y, 1), target);
  EXPECT_TRUE(all_close(loss, expected, 1e-13));
  loss.backward();
  expected.backward();
  EXPECT_TRUE(all_close(x.grad(), y.grad(), 1e-10, 1e-13));
}

TEST(CrossEntropy, StaysExactForSureAndForLargeLogits) {
  const Tensor sure = from_values(std::vector<float>{0, 100}, {1, 2}, Device("cpu:0"));
  EXPECT_EQ(cross_entropy(sure, labels({0}, {1})).item<double>(), 100);
  EXPECT_EQ(cross_entropy(sure, labels({1}, {1})).item<double>(), 0);
  const Tensor large = from_values(std::vector<float>{1e7F, 1e7F}, {1, 2}, Device("cpu:0"));
  EXPECT_FLOAT_EQ(cross_entropy(large, labels({0}, {1})).item<float>(), std::log(2.0F));
}

TEST(CrossEntropy, OfManyClassesIsTheSameInF32) {
  const Tensor x = varied({3, 50});
  const Tensor target = labels({49, 0, 17}, {3});
  const auto loss_and_gradient = [&](Dtype dtype) {
    const Tensor logits = x.detach().to(dtype).requires_grad_();
    const Tensor loss = cross_entropy(logits, target);
    loss.backward();
    return cat({loss.detach().reshape({1}), logits.grad().reshape({-1})}).to(Dtype::f64);
  };
  EXPECT_TRUE(all_close(loss_and_gradient(Dtype::f32), loss_and_gradient(Dtype::f64), 1e-5, 1e-7));
}

TEST(CrossEntropy, OfNoRowsIsNanAsAMeanAndZeroAsASum) {
  const Tensor x = varied_leaf({0, 3});
  const Tensor target = labels({}, {0});
  EXPECT_TRUE(std::isnan(cross_entropy(x, target).item<double>()));
  const Tensor total = cross_entropy(x, target, Reduction::sum);
  EXPECT_EQ(total.item<double>(), 0);
  total.backward();
  EXPECT_EQ(x.grad().sizes(), (Shape{0, 3}));
}

TEST(CrossEntropy, OfNoRowsMayBeOfAnyNumberOfClasses) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 62;
  const Tensor x = zeros({0, kLarge, 4}, {.requires_grad = true});
  cross_entropy(x, zeros({0, 4}, Dtype::i64), Reduction::sum).backward();
  EXPECT_EQ(x.grad().sizes(), x.sizes());
}

TEST(ClassLosses, HaveFirstAndSecondDerivatives) {
  for (const Case& c : cases()) {
    for (const Reduction reduction : kReductions) {
      const auto nll = [&](const Tensor& x, const Tensor& t) { return nll_loss(x, t, reduction); };
      const auto entropy = [&](const Tensor& x, const Tensor& t) {
        return cross_entropy(x, t, reduction);
      };
      const std::vector<Tensor> inputs = {c.input, c.target};
      EXPECT_TRUE(gradcheck(nll, inputs)) << c.input.sizes();
      EXPECT_TRUE(gradgradcheck(nll, inputs)) << c.input.sizes();
      EXPECT_TRUE(gradcheck(entropy, inputs)) << c.input.sizes();
      EXPECT_TRUE(gradgradcheck(entropy, inputs)) << c.input.sizes();
    }
  }
}

TEST(ClassLosses, NameALabelOutsideTheClassesAndReadNothingThere) {
  const Tensor x = varied({3, 10});
  for (const std::int64_t wrong : {std::int64_t{10}, std::int64_t{-1}, std::int64_t{1} << 60}) {
    const Tensor target = labels({4, 9, wrong}, {3});
    const std::vector<std::string> parts = {"label " + std::to_string(wrong), "row 2",
                                            "10 classes"};
    // On a GPU the error comes when the host waits for the value.
    expect_error<IndexError>([&] { (void)cross_entropy(x, target).item(); }, parts);
    expect_error<IndexError>([&] { (void)nll_loss(x, target).item(); }, parts);
  }
}

TEST(ClassLosses, ReportTheLabelWhereAnAsynchronousStreamIsSynchronised) {
  const Tensor x = varied_leaf({3, 10});
  const Tensor target = labels({4, 10, 0}, {3});
  const Stream stream = pool_stream(Device("cpu:0"));
  auto& host = static_cast<detail::HostStream&>(stream.state());
  host.set_mode(detail::HostStream::Mode::queued);
  {
    const StreamGuard guard(stream);
    const Tensor loss = cross_entropy(x, target);
    expect_error<IndexError>([&] { (void)loss.item<double>(); }, {"label 10", "row 1"});
    // Backward of it reads nothing out of bounds either.
    expect_error<IndexError>(
        [&] {
          loss.backward();
          stream.synchronize();
        },
        {"label 10", "row 1"});
  }
  host.set_mode(detail::HostStream::Mode::immediate);
}

TEST(ClassLosses, NameBothArgumentsInTheirErrors) {
  const Tensor x = varied({3, 10});
  using Loss = Tensor (*)(const Tensor&, const Tensor&, Reduction);
  const Loss entropy = [](const Tensor& a, const Tensor& b, Reduction reduction) {
    return cross_entropy(a, b, reduction);
  };
  for (const Loss loss : {Loss(nll_loss), entropy}) {
    expect_error<ShapeError>(
        [&] {
          loss(x, labels({1, 2}, {2}), Reduction::mean);
        },
        {"[3, 10]", "[2]"});
    expect_error<ShapeError>(
        [&] {
          loss(x, labels({1, 2, 0}, {3, 1}), Reduction::mean);
        },
        {"[3, 10]", "[3, 1]"});
    expect_error<ShapeError>([&] { loss(varied({}), labels({1}, {}), Reduction::mean); }, {"[]"});
    expect_error<DtypeError>([&] { loss(x, varied({3}), Reduction::mean); }, {"i64", "f64"});
    expect_error<DeviceError>(
        [&] {
          loss(x, labels({1, 2, 0}, {3}).to(Device("cpu:1")), Reduction::mean);
        },
        {"cpu:0", "cpu:1"});
    expect_error<DtypeError>(
        [&] {
          loss(labels({1, 2}, {1, 2}), labels({1}, {1}), Reduction::sum);
        },
        {"expected a floating-point dtype", "i64"});
  }
}

TEST(CrossEntropy, SmoothedLabelsAreSharedOutAmongTheClasses) {
  for (const Case& c : cases()) {
    const auto dim = static_cast<std::int64_t>(c.input.dim() == 1 ? 0 : 1);
    // What it is by hand: the loss of every class, weighted by what the label has of it.
    const std::int64_t classes = c.input.size(dim);
    const double smoothing = 0.3;
    Tensor expected =
        nll_loss(log_softmax(c.input, dim), c.target, Reduction::none) * (1 - smoothing);
    for (std::int64_t k = 0; k < classes; ++k) {
      expected = expected - select(log_softmax(c.input, dim), dim, k) *
                                (smoothing / static_cast<double>(classes));
    }
    EXPECT_TRUE(
        all_close(cross_entropy(c.input, c.target, Reduction::none, smoothing), expected, 1e-13));
    EXPECT_TRUE(all_close(cross_entropy(c.input, c.target, Reduction::sum, smoothing),
                          sum(expected), 1e-13));
    EXPECT_TRUE(all_close(cross_entropy(c.input, c.target, Reduction::mean, smoothing),
                          mean(expected), 1e-13));
    const auto smoothed = [&](const Tensor& x, const Tensor& t) {
      return cross_entropy(x, t, Reduction::mean, smoothing);
    };
    EXPECT_TRUE(gradcheck(smoothed, {c.input, c.target}));
    EXPECT_TRUE(gradgradcheck(smoothed, {c.input, c.target}));
  }
  EXPECT_NO_THROW((void)cross_entropy(varied({1, 2}), labels({0}, {1}), Reduction::mean, 1));
  for (const double wrong : {-0.1, 1.1, std::nan("")}) {
    expect_error<ValueError>(
        [&] {
          (void)cross_entropy(varied({1, 2}), labels({0}, {1}), Reduction::mean, wrong);
        },
        {"label_smoothing", "from 0 to 1"});
  }
}

TEST(MseLoss, IsTheMeanOfTheSquaredDifferences) {
  const Tensor a = tensor<float>({1, 2, 3, 4});
  const Tensor b = tensor<float>({1, 0, 0, 0});
  EXPECT_EQ(mse_loss(a, b, Reduction::none).to_vector<float>(), (std::vector<float>{0, 4, 9, 16}));
  EXPECT_EQ(mse_loss(a, b, Reduction::sum).item<double>(), 29);
  EXPECT_EQ(mse_loss(a, b).item<double>(), 7.25);
  EXPECT_TRUE(std::isnan(mse_loss(varied({0}), varied({0})).item<double>()));
}

TEST(MseLoss, HasFirstAndSecondDerivatives) {
  for (const Reduction reduction : kReductions) {
    const auto f = [=](const Tensor& a, const Tensor& b) { return mse_loss(a, b, reduction); };
    EXPECT_TRUE(gradcheck(f, {varied_leaf({2, 3}), varied_leaf({2, 3}, 1)}));
    EXPECT_TRUE(gradgradcheck(f, {varied_leaf({2, 3}), varied_leaf({2, 3}, 1)}));
    EXPECT_TRUE(gradgradcheck(f, {varied_leaf({2, 3}), varied({2, 3}, 1)}));
    EXPECT_TRUE(gradgradcheck(f, {varied({2, 3}), varied_leaf({2, 3}, 1)}));
  }
}

// The losses of two tensors, element by element, and each by hand.
struct PairLoss {
  Tensor (*loss)(const Tensor& input, const Tensor& target, Reduction reduction);
  double (*by_hand)(double x, double t);
};

Tensor smooth(const Tensor& input, const Tensor& target, Reduction reduction) {
  return smooth_l1_loss(input, target, reduction, 0.4);
}

const std::vector<PairLoss> kPairLosses = {
    {l1_loss, [](double x, double t) { return std::abs(x - t); }},
    {smooth,
     [](double x, double t) {
       const double d = std::abs(x - t);
       return d < 0.4 ? d * d / 0.8 : d - 0.2;
     }},
    {binary_cross_entropy,
     [](double x, double t) { return -t * std::log(x) - (1 - t) * std::log(1 - x); }},
    {binary_cross_entropy_with_logits,
     [](double x, double t) {
       const double p = 1 / (1 + std::exp(-x));
       return -t * std::log(p) - (1 - t) * std::log(1 - p);
     }},
};

// Numbers between 0 and 1, in two layouts.
Tensor parts(std::size_t seed) { return (varied({3, 4}, seed) * 0.49 + 0.5).t().detach(); }

TEST(PairLosses, AreWhatTheyAreByHand) {
  const Tensor x = parts(0);
  const Tensor target = parts(1).contiguous();
  const std::vector<double> in = x.to_vector<double>();
  const std::vector<double> wanted = target.to_vector<double>();
  for (const PairLoss& each : kPairLosses) {
    std::vector<double> expected;
    double total = 0;
    for (std::size_t i = 0; i < in.size(); ++i) {
      expected.push_back(each.by_hand(in[i], wanted[i]));
      total += expected.back();
    }
    EXPECT_TRUE(all_close(each.loss(x, target, Reduction::none),
                          from_values(expected, x.sizes(), x.device()), 1e-12));
    EXPECT_NEAR(each.loss(x, target, Reduction::sum).item(), total, 1e-12);
    EXPECT_NEAR(each.loss(x, target, Reduction::mean).item(), total / 12, 1e-13);
    EXPECT_TRUE(std::isnan(each.loss(varied({0}), varied({0}), Reduction::mean).item()));
    EXPECT_EQ(each.loss(x.to(Dtype::bf16), target.to(Dtype::bf16), Reduction::mean).dtype(),
              Dtype::bf16);
  }
}

TEST(PairLosses, HaveFirstAndSecondDerivatives) {
  const std::vector<Tensor> x = {parts(0).requires_grad_(), parts(1).requires_grad_()};
  for (const PairLoss& each : kPairLosses) {
    for (const Reduction reduction : kReductions) {
      const auto f = [&](const Tensor& a, const Tensor& b) { return each.loss(a, b, reduction); };
      EXPECT_TRUE(gradcheck(f, x));
      EXPECT_TRUE(gradgradcheck(f, x));
      EXPECT_TRUE(gradgradcheck(f, {x[0], parts(1)}));
    }
  }
}

TEST(PairLosses, NameBothArgumentsInTheirErrors) {
  const Tensor a = varied({3, 1});
  for (const PairLoss& each : kPairLosses) {
    const auto loss = [&](const Tensor& b) { return each.loss(a, b, Reduction::mean); };
    expect_error<ShapeError>([&] { loss(varied({3})); }, {"[3, 1]", "[3]"});
    expect_error<DtypeError>([&] { loss(varied<float>({3, 1})); }, {"f64", "f32"});
    expect_error<DeviceError>(
        [&] {
          loss(varied({3, 1}, 0, Device("cpu:3")));
        },
        {"cpu:0", "cpu:3"});
    expect_error<ValueError>([&] { loss(Tensor()); }, {"the target", "undefined"});
  }
  expect_error<ValueError>([&] { smooth_l1_loss(a, a, Reduction::mean, -1); }, {"beta", "-1"});
}

TEST(SmoothL1Loss, WithoutBetaIsL1Loss) {
  const Tensor x = varied({5});
  const Tensor target = varied({5}, 1);
  EXPECT_EQ(smooth_l1_loss(x, target, Reduction::none, 0).to_vector<double>(),
            l1_loss(x, target, Reduction::none).to_vector<double>());
  expect_error<ShapeError>([&] { smooth_l1_loss(x, varied({1}), Reduction::mean, 0); },
                           {"smooth_l1_loss", "[5]", "[1]"});
  const Tensor narrow = x.to(Dtype::f32), same = narrow.detach();
  EXPECT_EQ(smooth_l1_loss(narrow, same, Reduction::sum, 1e-50).item(), 0);  // of f32 no number
}

TEST(SmoothL1Loss, WithAnInfiniteBetaIsZero) {
  const Tensor x = tensor<double>({1, -3, 0}).requires_grad_();
  const Tensor y = smooth_l1_loss(x, zeros_like(x), Reduction::none, HUGE_VAL);
  y.sum().backward();
  EXPECT_EQ(y.to_vector<double>(), std::vector<double>(3, 0));
  EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(3, 0));
}

// Where a logarithm is infinite, and where the derivative of |x| is not that of the loss.
TEST(BinaryCrossEntropy, IsFiniteAndHasTorchsGradientsAtTheEnds) {
  const Tensor x = tensor<double>({0, 0, 1, 1}).requires_grad_();
  const Tensor target = tensor<double>({0, 1, 0, 1});
  const Tensor loss = binary_cross_entropy(x, target, Reduction::none);
  EXPECT_EQ(loss.to_vector<double>(), (std::vector<double>{0, 100, 100, 0}));
  loss.backward(ones({4}, Dtype::f64));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{0, -1e12, 1e12, 0}));
  EXPECT_TRUE(std::isnan(binary_cross_entropy(tensor({1.5F}), tensor({1.0F})).item()));
}

TEST(BinaryCrossEntropyWithLogits, IsExactForLogitsOfAnySize) {
  const Tensor x = tensor({0.0F, 0.0F, -500.0F, -500.0F, 500.0F, -20.0F}).requires_grad_();
  const Tensor target = tensor({0.0F, 1.0F, 0.0F, 1.0F, 1.0F, 0.0F});
  const Tensor loss = binary_cross_entropy_with_logits(x, target, Reduction::none);
  const std::vector<float> values = loss.to_vector<float>();
  EXPECT_FLOAT_EQ(values[0], std::log(2.0F));
  EXPECT_FLOAT_EQ(values[1], std::log(2.0F));
  EXPECT_EQ(values[2], 0);
  EXPECT_EQ(values[3], 500);
  EXPECT_EQ(values[4], 0);
  EXPECT_FLOAT_EQ(values[5], std::exp(-20.0F));
  loss.backward(ones({6}));
  const std::vector<float> grads = x.grad().to_vector<float>();
  EXPECT_EQ(std::vector<float>(grads.begin(), grads.begin() + 5),
            (std::vector<float>{0.5, -0.5, 0, -1, 0}));
}

// As torch 2.15, which has NaN at (-inf, 1), where the loss is infinite.
TEST(BinaryCrossEntropyWithLogits, OfAnInfiniteLogitIsInfiniteOrNone) {
  const Tensor x =
      tensor({INFINITY, INFINITY, INFINITY, -INFINITY, -INFINITY, NAN}, "cpu:0").requires_grad_();
  const Tensor target = tensor({0.0F, 0.5F, 1.0F, 0.0F, 1.0F, 0.0F}, "cpu:0");
  const Tensor loss = binary_cross_entropy_with_logits(x, target, Reduction::none);
  const std::vector<float> values = loss.to_vector<float>();
  EXPECT_EQ(values[0], INFINITY);
  EXPECT_EQ(values[1], INFINITY);
  EXPECT_TRUE(std::isnan(values[2]) && std::isnan(values[3]) && std::isnan(values[5]));
  EXPECT_EQ(values[4], INFINITY);
  loss.backward(ones({6}, {.device = "cpu:0"}));
  const std::vector<float> grads = x.grad().to_vector<float>();
  EXPECT_EQ(std::vector<float>(grads.begin(), grads.begin() + 5),
            (std::vector<float>{1, 0.5, 0, 0, -1}));
}

TEST(PairLosses, AreOfF32UnderAutocast) {
  const AutocastGuard on(true);
  const Tensor x = parts(0).to(Dtype::f32).to(Dtype::bf16);
  for (const PairLoss& each : kPairLosses) {
    const auto loss = [&] { return each.loss(x, parts(1).to(Dtype::f32), Reduction::mean); };
    if (each.loss == binary_cross_entropy) {
      expect_error<DtypeError>([&] { loss(); }, {"binary_cross_entropy_with_logits", "autocast"});
    } else {
      EXPECT_EQ(loss().dtype(), Dtype::f32);
    }
  }
}

TEST(PairLosses, SmoothL1OverflowsOnlyWhereTheLossDoes) {
  const Tensor far = full({1}, 1e30F);
  EXPECT_FLOAT_EQ(static_cast<float>(smooth_l1_loss(far, zeros({1}), Reduction::mean, 1e10).item()),
                  1e30F);
  const Tensor half = full({1}, 1000).to(Dtype::f16);
  EXPECT_EQ(smooth_l1_loss(half, half * 0, Reduction::mean, 100).to(Dtype::f32).item(), 950);
}

TEST(PairLosses, BinaryCrossEntropyOfHalfPrecisionHasAFiniteGradient) {
  const Tensor one = full({1}, 1).to(Dtype::f16).requires_grad_();
  binary_cross_entropy(one, one.detach()).backward();
  EXPECT_EQ(one.grad().to(Dtype::f32).item(), 0);
}

TEST(Losses, OfHalfPrecisionAreThoseOfF32RoundedOnce) {
  const Tensor target = labels({2, 0, 1}, {3});
  const std::vector<std::function<Tensor(const Tensor&)>> functions = {
      [](const Tensor& x) { return softmax(x, 1); },
      [](const Tensor& x) { return log_softmax(x, 1); },
      [&](const Tensor& x) { return nll_loss(x, target, Reduction::none); },
      [&](const Tensor& x) { return cross_entropy(x, target); },
      [&](const Tensor& x) { return cross_entropy(x, target, Reduction::sum, 0.1); },
      [](const Tensor& x) {
        return mse_loss(x, full({3, 4}, 0.25, x.detach().options()));
      },
      [](const Tensor& x) {
        return l1_loss(x, full({3, 4}, 0.25, x.detach().options()));
      },
      [](const Tensor& x) {
        return smooth_l1_loss(x, full({3, 4}, 0.25, x.detach().options()), Reduction::mean, 0.3);
      },
      [](const Tensor& x) {
        return binary_cross_entropy(abs(x), full({3, 4}, 0.25, x.detach().options()));
      },
      [](const Tensor& x) {
        return binary_cross_entropy_with_logits(x, full({3, 4}, 0.25, x.detach().options()));
      }};
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
    for (const auto& f : functions) {
      const Tensor x = varied<float>({3, 4}).to(dtype).requires_grad_();
      const Tensor wide = x.detach().to(Dtype::f32).requires_grad_();
      const Tensor result = f(x);
      const Tensor expected = f(wide);
      EXPECT_EQ(result.dtype(), dtype);
      EXPECT_EQ(result.to(Dtype::f32).to_vector<float>(),
                expected.to(dtype).to(Dtype::f32).to_vector<float>());
      result.backward(ones(result.sizes(), result.options()));
      expected.backward(ones(expected.sizes(), expected.options()));
      EXPECT_EQ(x.grad().to(Dtype::f32).to_vector<float>(),
                wide.grad().to(dtype).to(Dtype::f32).to_vector<float>());
    }
  }
}

TEST(MseLoss, NamesBothArgumentsInItsErrors) {
  const Tensor a = varied({3, 1});
  expect_error<ShapeError>([&] { mse_loss(a, varied({3})); }, {"mse_loss", "[3, 1]", "[3]"});
  expect_error<DtypeError>([&] { mse_loss(a, varied<float>({3, 1})); }, {"f64", "f32"});
  expect_error<DeviceError>(
      [&] {
        mse_loss(a, varied({3, 1}, 0, Device("cpu:3")));
      },
      {"cpu:0", "cpu:3"});
}

}  // namespace loss_test
}  // namespace lockstep
