// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/module/hooks.hpp>
#include <lockstep/nn/loss.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/loss.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/criterion.hpp>

#include "parallel/layers.hpp"
#include "support/devices.hpp"
#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace ls = lockstep;
using ls::testing::f64;
using ls::testing::first_devices;
using ls::testing::L0;
using ls::testing::throws;
using ls::testing::x5;

namespace criterion_test {

using Values = std::vector<double>;

struct MeanOfDifference {
  ls::Tensor forward(const ls::Tensor& output, const ls::Tensor& target) const {
    return (output - target).mean();
  }
};
struct Identity {
  ls::Tensor forward(const ls::Tensor& x) const { return x; }
};

TEST(Criterion, E01TheMeanIsTheBatchsMean) {
  ls::DataParallelModel model{Identity{}, first_devices(3)};
  ls::DataParallelCriterion criterion{MeanOfDifference{}};
  const ls::Tensor x = f64({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {10, 1});
  x.requires_grad_();
  const ls::Tensor loss = criterion(model(x), ls::zeros({10, 1}, {.dtype = ls::Dtype::f64}));
  EXPECT_DOUBLE_EQ(loss.item(), 5.5);
  EXPECT_EQ(loss.device(), ls::Device("cpu:0"));
  EXPECT_EQ(loss.sizes(), ls::Shape{});
  loss.backward();
  for (const double g : x.grad().to_vector<double>()) EXPECT_DOUBLE_EQ(g, 0.1);
}

TEST(Criterion, E02GradientsEqualTheUnsplitOnes) {
  const ls::Tensor target = f64({1, 1, 2, 2, 0, 0, 1, 2, 3, 4}, {5, 2});
  for (const std::size_t devices : {std::size_t{1}, std::size_t{2}, std::size_t{4}}) {
    L0 plain;
    const ls::Tensor want = ls::mse_loss(plain.forward(x5()), target);
    want.backward();
    struct Mse {
      ls::Tensor forward(const ls::Tensor& output, const ls::Tensor& goal) const {
        return ls::mse_loss(output, goal);
      }
    };
    ls::DataParallelModel model{L0{}, first_devices(devices)};
    ls::DataParallelCriterion criterion{Mse{}};
    const ls::Tensor loss = criterion(model(x5()), target);
    EXPECT_NEAR(loss.item(), want.item(), 1e-12);
    loss.backward();
    const Values got = model.module().weight.grad().to_vector<double>();
    const Values expected = plain.weight.grad().to_vector<double>();
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-12);
  }
}

TEST(Criterion, E03OneSampleOverTwoDevices) {
  ls::DataParallelModel model{Identity{}, first_devices(2)};
  ls::DataParallelCriterion criterion{MeanOfDifference{}};
  EXPECT_EQ(criterion(model(f64({3}, {1, 1})), f64({1}, {1, 1})).item(), 2.0);
}

TEST(Criterion, E04OutputsAreBareTensorsWhereTheyWereMade) {
  ls::DataParallelModel model{L0{}, first_devices(2)};
  const ls::Scattered<ls::Tensor> outputs = model(x5());
  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_EQ(outputs[1].device(), ls::Device("cpu:1"));
  EXPECT_EQ(outputs[1].sizes(), (ls::Shape{2, 2}));
}

TEST(Criterion, ASumIsAdded) {
  struct Sum {
    ls::Tensor forward(const ls::Tensor& output, const ls::Tensor& target) const {
      return (output - target).sum();
    }
  };
  ls::DataParallelModel model{Identity{}, first_devices(3)};
  ls::DataParallelCriterion criterion{Sum{}, ls::Reduction::sum};
  EXPECT_EQ(
      criterion(model(f64({1, 2, 3, 4}, {4})), ls::zeros({4}, {.dtype = ls::Dtype::f64})).item(),
      10.0);
}

struct SumForAll {
  inline static ls::Reduction reduction = ls::Reduction::sum;
  ls::Tensor forward(const ls::Tensor& output, const ls::Tensor& target) const {
    return (output - target).sum();
  }
};

TEST(Criterion, TakesTheReductionOfItsCriterion) {
  ls::DataParallelModel model{Identity{}, first_devices(2)};
  const ls::Tensor x = f64({1, 2, 3}, {3});
  const ls::Tensor zero = ls::zeros({3}, {.dtype = ls::Dtype::f64});
  ls::DataParallelCriterion sum{ls::nn::L1Loss{ls::Reduction::sum}};
  EXPECT_EQ(sum(model(x), zero).item(), 6.0);
  ls::DataParallelCriterion none{ls::nn::L1Loss{ls::Reduction::none}};
  EXPECT_EQ(none(model(x), zero).to_vector<double>(), (Values{1, 2, 3}));
  none.module().reduction = ls::Reduction::mean;
  EXPECT_EQ(none(model(x), zero).item(), 2.0);
  ls::DataParallelCriterion shared{SumForAll{}};
  EXPECT_EQ(shared(model(x), zero).item(), 6.0);
  ls::DataParallelCriterion given{ls::nn::L1Loss{}, ls::Reduction{}};
  EXPECT_EQ(given(model(x), zero).item(), 2.0);
}

TEST(Criterion, TakesTheReductionOfACriterionWithAHook) {
  ls::DataParallelModel model{Identity{}, first_devices(2)};
  ls::DataParallelCriterion sum{ls::register_forward_hook(
      ls::nn::L1Loss{ls::Reduction::sum}, [](const auto&, const auto&, const auto&) {})};
  const ls::Tensor zero = ls::zeros({3}, {.dtype = ls::Dtype::f64});
  EXPECT_EQ(sum(model(f64({1, 2, 3}, {3})), zero).item(), 6.0);
}

TEST(Criterion, ScatteredTargetsAreTakenAsTheyAre) {
  ls::DataParallelModel model{Identity{}, first_devices(2)};
  ls::DataParallelCriterion criterion{MeanOfDifference{}};
  const auto targets = ls::scatter(f64({1, 1, 1}, {3}), first_devices(2));
  EXPECT_EQ(criterion(model(f64({1, 2, 3}, {3})), targets).item(), 1.0);
}

TEST(Criterion, WhichOutputOrLossIsUndefined) {
  struct DefinedOnTheFirst {
    ls::Tensor forward(const ls::Tensor& x) const {
      return x.device() == ls::Device("cpu:0") ? x : ls::Tensor();
    }
  };
  struct DefinedLossOnTheFirst {
    ls::Tensor forward(const ls::Tensor& x, const ls::Tensor&) const {
      return x.device() == ls::Device("cpu:0") ? x.sum() : ls::Tensor();
    }
  };
  const ls::Tensor x = f64({1, 2, 3}, {3});
  ls::DataParallelModel half{DefinedOnTheFirst{}, first_devices(2)};
  ls::DataParallelModel model{Identity{}, first_devices(2)};
  ls::DataParallelCriterion criterion{DefinedLossOnTheFirst{}};
  EXPECT_TRUE(throws<ls::ValueError>([&] { criterion(half(x), x); }, "output 1 has no tensor"));
  EXPECT_TRUE(throws<ls::ValueError>([&] { criterion(model(x), x); }, "undefined tensor on cpu:1",
                                     "replica 1"));
}

TEST(Criterion, ALossWithoutElementsIsNoSingleValue) {
  struct Nothing {
    ls::Tensor forward(const ls::Tensor&) const { return ls::zeros({INT64_MAX, 4, 0}); }
  };
  ls::DataParallelModel model{Identity{}, first_devices(2)};
  ls::DataParallelCriterion criterion{Nothing{}};
  EXPECT_TRUE(throws<ls::ShapeError>([&] { criterion(model(x5())); }, "0 values", "cpu:0"));
}

TEST(Criterion, TargetsOfAnotherLength) {
  ls::DataParallelModel model{Identity{}, first_devices(2)};
  ls::DataParallelCriterion criterion{MeanOfDifference{}};
  EXPECT_TRUE(throws<ls::ValueError>(
      [&] {
        criterion(model(f64({1, 2, 3}, {3})), f64({1, 2}, {2}));
      },
      "args[1] has 2", "args[0]"));
}

TEST(Criterion, OutputsThatAreStructures) {
  struct TwoHeads {
    std::pair<ls::Tensor, ls::Tensor> forward(const ls::Tensor& x) const { return {x, x * 2.0}; }
  };
  struct First {
    ls::Tensor forward(const std::pair<ls::Tensor, ls::Tensor>& output,
                       const ls::Tensor& target) const {
      return (output.second - target).mean();
    }
  };
  ls::DataParallelModel model{TwoHeads{}, first_devices(2)};
  ls::DataParallelCriterion criterion{First{}};
  EXPECT_DOUBLE_EQ(criterion(model(f64({1, 2, 3}, {3})), f64({1, 1, 1}, {3})).item(), 3.0);
}

TEST(Criterion, TheBatchMayLieAlongAnotherDim) {
  ls::DataParallelModel model{Identity{}, first_devices(2), {.dim = 1}};
  ls::DataParallelCriterion criterion{MeanOfDifference{}, ls::Reduction::mean, 1};
  const ls::Tensor x = f64({1, 2, 3, 4, 5}, {1, 5});
  EXPECT_DOUBLE_EQ(criterion(model(x), ls::zeros({1, 5}, {.dtype = ls::Dtype::f64})).item(), 3.0);
}

TEST(Criterion, LossesOfRowsAreConcatenated) {
  struct Each {
    ls::Tensor forward(const ls::Tensor& x, const ls::Tensor& target) const { return x - target; }
  };
  for (const std::size_t devices : {1U, 2U, 3U}) {
    ls::DataParallelModel model{Identity{}, first_devices(devices)};
    ls::DataParallelCriterion criterion{Each{}, ls::Reduction::none};
    const ls::Tensor losses = criterion(model(f64({3, 5, 7}, {3})), f64({1, 2, 3}, {3}));
    EXPECT_EQ(losses.to_vector<double>(), (std::vector<double>{2, 3, 4}));
  }
}

TEST(Criterion, WithoutDevicesTheModelIsCalledAsItIs) {
  ls::DataParallelModel model{Identity{}, std::nullopt};
  ls::DataParallelCriterion criterion{MeanOfDifference{}};
  const auto outputs = model(f64({1, 2, 3}, {3}));
  EXPECT_EQ(outputs.size(), 1U);
  EXPECT_DOUBLE_EQ(criterion(outputs, ls::zeros({3}, {.dtype = ls::Dtype::f64})).item(), 2.0);
}

TEST(Criterion, AScalarBesideTheOutputDoesNotCountAsItsRows) {
  struct WithAux {
    std::tuple<ls::Tensor, ls::Tensor> forward(const ls::Tensor& x) const {
      return {ls::ones({}, x.options()), x};
    }
  };
  struct Second {
    ls::Tensor forward(const std::tuple<ls::Tensor, ls::Tensor>& outputs,
                       const ls::Tensor& target) const {
      return (std::get<1>(outputs) - target).mean();
    }
  };
  ls::DataParallelModel model{WithAux{}, first_devices(2)};
  ls::DataParallelCriterion criterion{Second{}};
  EXPECT_DOUBLE_EQ(criterion(model(f64({1, 2, 9}, {3})), f64({0, 0, 0}, {3})).item(), 4);
}

}  // namespace criterion_test
