// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/backend/host/host_stream.hpp>
#include <lockstep/ops/loss.hpp>
#include <lockstep/ops/softmax.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
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

TEST(CrossEntropy, StaysExactForSureAndForLargeLogits) {
  const Tensor sure = from_values(std::vector<float>{0, 100}, {1, 2}, Device("cpu:0"));
  EXPECT_EQ(cross_entropy(sure, labels({0}, {1})).item<double>(), 100);
  EXPECT_EQ(cross_entropy(sure, labels({1}, {1})).item<double>(), 0);
  const Tensor large = from_values(std::vector<float>{1e7F, 1e7F}, {1, 2}, Device("cpu:0"));
  EXPECT_FLOAT_EQ(cross_entropy(large, labels({0}, {1})).item<float>(), std::log(2.0F));
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
  for (const auto loss : {nll_loss, cross_entropy}) {
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
        {"expected f32 or f64", "i64"});
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
