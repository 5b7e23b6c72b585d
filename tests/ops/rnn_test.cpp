// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/rnn.hpp>

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/kernels/rnn_kernels.hpp>
#include <lockstep/ops/kernels/vector_math.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/rnn/rnn_composed.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/expect_error.hpp"
#include "support/gradcheck.hpp"
#include "support/varied.hpp"

namespace lockstep {
namespace rnn_test {

using detail::RecurrentArguments;
using testing::all_close;
using testing::gradcheck;
using testing::gradgradcheck;
using testing::throws;
using testing::varied_leaf;
using A = RecurrentArguments;

constexpr std::int64_t kLength = 3;
constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kFeatures = 2;
constexpr std::int64_t kWidth = 3;

// Arguments that all require gradients, but those for which there is no use.
template <class Cell, class T = double>
RecurrentArguments arguments_for(std::int64_t length = kLength, std::int64_t batch = kBatch,
                                 std::int64_t width = kWidth) {
  const auto rows = static_cast<std::int64_t>(Cell::kGates) * width;
  RecurrentArguments arguments{
      {varied_leaf<T>({length, batch, kFeatures}, 1), varied_leaf<T>({batch, width}, 2), Tensor(),
       varied_leaf<T>({rows, kFeatures}, 4), varied_leaf<T>({rows, width}, 5),
       varied_leaf<T>({rows}, 6), varied_leaf<T>({rows}, 7)}};
  if (Cell::kHasC) arguments.tensors[A::c0] = varied_leaf<T>({batch, width}, 3);
  return arguments;
}

std::vector<Tensor> as_list(const RecurrentArguments& arguments) {
  return {arguments.tensors.begin(), arguments.tensors.end()};
}

RecurrentArguments from_list(const std::vector<Tensor>& x) {
  RecurrentArguments arguments;
  for (std::size_t i = 0; i < A::count; ++i) arguments.tensors[i] = x[i];
  return arguments;
}

template <class Cell>
class Recurrent : public ::testing::Test {};
using Cells =
    ::testing::Types<detail::TanhCell, detail::ReluCell, detail::LstmCell, detail::GruCell>;
TYPED_TEST_SUITE(Recurrent, Cells);

TYPED_TEST(Recurrent, GradientsAgreeWithFiniteDifferences) {
  for (const bool reverse : {false, true}) {
    for (const std::int64_t length : {kLength, std::int64_t{1}}) {
      const auto run = [reverse](const std::vector<Tensor>& x) {
        return detail::recurrent<TypeParam>(from_list(x), reverse);
      };
      EXPECT_TRUE(gradcheck(run, as_list(arguments_for<TypeParam>(length)))) << reverse;
    }
  }
}

TYPED_TEST(Recurrent, SecondDerivativesAgreeWithFiniteDifferences) {
  for (const bool reverse : {false, true}) {
    const auto run = [reverse](const std::vector<Tensor>& x) {
      return detail::recurrent<TypeParam>(from_list(x), reverse);
    };
    EXPECT_TRUE(gradgradcheck(run, as_list(arguments_for<TypeParam>(2, 1)))) << reverse;
  }
}

TYPED_TEST(Recurrent, AgreesWithElementaryOperations) {
  const RecurrentArguments arguments = arguments_for<TypeParam>();
  for (const bool reverse : {false, true}) {
    const auto fused = detail::recurrent<TypeParam>(arguments, reverse);
    const auto composed = detail::recurrent_composed<TypeParam>(arguments, reverse);
    ASSERT_EQ(fused.size(), composed.size());
    for (std::size_t i = 0; i < fused.size(); ++i) {
      EXPECT_TRUE(all_close(fused[i], composed[i], 1e-12)) << i;
    }
  }
}

// The layer's results and gradients, beside those of elementary operations.
template <class Cell>
void expect_as_composed(const RecurrentArguments& arguments, bool reverse, double close,
                        const std::string& what) {
  const auto gradients_of = [&](const std::vector<Tensor>& results) {
    for (const Tensor& tensor : arguments.tensors) {
      if (tensor.defined()) tensor.set_grad({});
    }
    Tensor total = sum(results[0] * results[0]);
    for (std::size_t i = 1; i < results.size(); ++i) total = total + sum(results[i]);
    total.backward();
    std::vector<Tensor> all;
    for (const Tensor& tensor : arguments.tensors) {
      if (tensor.defined()) all.push_back(tensor.grad());
    }
    return all;
  };
  const auto fused = detail::recurrent<Cell>(arguments, reverse);
  const auto composed = detail::recurrent_composed<Cell>(arguments, reverse);
  for (std::size_t i = 0; i < fused.size(); ++i) {
    EXPECT_TRUE(all_close(fused[i], composed[i], close / 10, close / 1000)) << i << what;
  }
  const std::vector<Tensor> found = gradients_of(fused);
  const std::vector<Tensor> expected = gradients_of(composed);
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(all_close(found[i], expected[i], close, close / 10)) << i << what;
  }
}

// A host device takes 64 units at a time: of these widths one is less, one more, one such a block.
TYPED_TEST(Recurrent, LayersOfAnyWidthAgreeWithElementaryOperations) {
  const double close =
      Device("cpu:0").is_cpu() ? 1e-11 : 1e-10;  // cuDNN's sums have their own order
  for (const std::int64_t width : {5, 64, 133}) {
    expect_as_composed<TypeParam>(arguments_for<TypeParam>(kLength, kBatch, width), false, close,
                                  " of width " + std::to_string(width));
  }
}

// A host device computes runs of 256 rows: here one step, two and two, or five runs of one step.
TYPED_TEST(Recurrent, SequencesOfManyRowsAgreeWithElementaryOperations) {
  for (const bool reverse : {false, true}) {
    for (const std::int64_t batch : {100, 300}) {
      expect_as_composed<TypeParam>(arguments_for<TypeParam>(5, batch, 3), reverse, 1e-9,
                                    " of batch " + std::to_string(batch));
    }
  }
}

// The cells whose gradient rounding does not decide, as it does ReLU's near 0.
template <class Cell>
class RecurrentOfF32 : public ::testing::Test {};
using SmoothCells = ::testing::Types<detail::TanhCell, detail::LstmCell, detail::GruCell>;
TYPED_TEST_SUITE(RecurrentOfF32, SmoothCells);

// Of two steps, in which another device's rounding does not grow.
TYPED_TEST(RecurrentOfF32, ShortSequencesAgreeWithElementaryOperations) {
  expect_as_composed<TypeParam>(arguments_for<TypeParam, float>(2, 3, 5), false, 1e-3, " of f32");
}

// The host sums f32 in tiles, where the processor has them. Rounding grows from step to step, and
// without AVX-512 the elementary operations' products are a BLAS's.
TYPED_TEST(RecurrentOfF32, SequencesInTilesAgreeWithElementaryOperations) {
  using detail::vectorized::Instructions;
  const bool in_tiles = detail::vectorized::best_instructions() >= Instructions::avx512;
  expect_as_composed<TypeParam>(arguments_for<TypeParam, float>(5, 100, 64), false,
                                in_tiles ? 1e-3 : 5e-2, " of f32");
}

// Each result alone, so that the others' gradients are undefined.
TYPED_TEST(Recurrent, AResultThatIsNotUsedGivesNoGradient) {
  const std::size_t count = TypeParam::kHasC ? 3 : 2;
  for (std::size_t k = 0; k < count; ++k) {
    const auto run = [k](const std::vector<Tensor>& x) {
      return detail::recurrent<TypeParam>(from_list(x), false)[k];
    };
    EXPECT_TRUE(gradcheck(run, as_list(arguments_for<TypeParam>()))) << k;
  }
}

TYPED_TEST(Recurrent, ArgumentsThatNeedNoGradientGetNone) {
  for (const A::Argument wanted :
       {A::x, A::h0, A::c0, A::weight_ih, A::weight_hh, A::bias_ih, A::bias_hh}) {
    RecurrentArguments arguments = arguments_for<TypeParam>();
    if (!arguments[wanted].defined()) continue;
    for (Tensor& tensor : arguments.tensors) {
      if (tensor.defined()) tensor = tensor.detach();
    }
    arguments.tensors[wanted].requires_grad_();
    const auto run = [](const std::vector<Tensor>& x) {
      return detail::recurrent<TypeParam>(from_list(x), false);
    };
    EXPECT_TRUE(gradcheck(run, as_list(arguments))) << wanted;
    sum(detail::recurrent<TypeParam>(arguments, false)[0]).backward();
    for (std::size_t i = 0; i < A::count; ++i) {
      const Tensor& tensor = arguments.tensors[i];
      if (!tensor.defined()) continue;
      EXPECT_EQ(tensor.grad().defined(), i == wanted) << i;
    }
  }
}

TYPED_TEST(Recurrent, UndefinedStatesAreZerosAndBiasesMayBeAbsent) {
  RecurrentArguments with = arguments_for<TypeParam>();
  RecurrentArguments without = with;
  for (const A::Argument which : {A::h0, A::c0, A::bias_ih, A::bias_hh}) {
    if (with[which].defined()) with.tensors[which] = zeros_like(with[which]);
    without.tensors[which] = Tensor();
  }
  const auto expected = detail::recurrent<TypeParam>(with, false);
  const auto found = detail::recurrent<TypeParam>(without, false);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(found[i].template to_vector<double>(), expected[i].template to_vector<double>());
  }
  const auto run = [](const std::vector<Tensor>& x) {
    return detail::recurrent<TypeParam>(from_list(x), false);
  };
  EXPECT_TRUE(gradcheck(run, as_list(without)));
}

TYPED_TEST(Recurrent, TakesArgumentsThatLieScattered) {
  const RecurrentArguments arguments = arguments_for<TypeParam>();
  RecurrentArguments scattered;
  for (std::size_t i = 0; i < A::count; ++i) {
    const Tensor& tensor = arguments.tensors[i];
    if (!tensor.defined()) continue;
    const Tensor turned = tensor.dim() < 2 ? tensor : tensor.transpose(0, 1).contiguous();
    scattered.tensors[i] = tensor.dim() < 2 ? tensor : turned.transpose(0, 1);
  }
  EXPECT_FALSE(scattered[A::weight_hh].is_contiguous());
  const auto expected = detail::recurrent<TypeParam>(arguments, true);
  const auto found = detail::recurrent<TypeParam>(scattered, true);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(all_close(found[i], expected[i], 1e-12)) << i;
  }
  const auto run = [](const std::vector<Tensor>& x) {
    std::vector<Tensor> turned = x;
    for (Tensor& tensor : turned) {
      if (tensor.defined() && tensor.dim() >= 2) {
        tensor = tensor.transpose(0, 1).contiguous().transpose(0, 1);
      }
    }
    return detail::recurrent<TypeParam>(from_list(turned), true);
  };
  EXPECT_TRUE(gradcheck(run, as_list(arguments)));
}

TYPED_TEST(Recurrent, TakesAnEmptyBatch) {
  const RecurrentArguments arguments = arguments_for<TypeParam>(kLength, 0);
  const auto results = detail::recurrent<TypeParam>(arguments, false);
  EXPECT_EQ(results[0].sizes(), (Shape{kLength, 0, kWidth}));
  EXPECT_EQ(results[1].sizes(), (Shape{0, kWidth}));
  sum(results[0]).backward();
  const Tensor grad = arguments[A::weight_hh].grad();
  EXPECT_EQ(grad.template to_vector<double>(),
            std::vector<double>(static_cast<std::size_t>(grad.numel()), 0.0));
}

TYPED_TEST(Recurrent, OneArgumentMayBeComputedFromAnother) {
  const auto run = [](const std::vector<Tensor>& x) {
    std::vector<Tensor> list = x;
    list[A::x] = list[A::x] * sum(list[A::h0]);  // the state's gradient comes in two ways
    return detail::recurrent<TypeParam>(from_list(list), false);
  };
  const std::vector<Tensor> x = as_list(arguments_for<TypeParam>(2, 1));
  EXPECT_TRUE(gradcheck(run, x));
  EXPECT_TRUE(gradgradcheck(run, x));
}

TYPED_TEST(Recurrent, HalfPrecisionIsComputedInF32AndRoundedOnce) {
  for (const Dtype half : {Dtype::bf16, Dtype::f16}) {
    RecurrentArguments halves = arguments_for<TypeParam, float>();
    RecurrentArguments floats = halves;
    for (std::size_t i = 0; i < A::count; ++i) {
      if (!halves.tensors[i].defined()) continue;
      halves.tensors[i] = halves.tensors[i].detach().to(half).requires_grad_();
      floats.tensors[i] = halves.tensors[i].detach().to(Dtype::f32);
    }
    const auto found = detail::recurrent<TypeParam>(halves, false);
    const auto expected = detail::recurrent<TypeParam>(floats, false);
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].dtype(), half);
      EXPECT_EQ(found[i].to(Dtype::f32).template to_vector<float>(),
                expected[i].to(half).to(Dtype::f32).template to_vector<float>());
    }
    sum(found[0]).backward();
    EXPECT_EQ(halves[A::weight_hh].grad().dtype(), half);
  }
}

TYPED_TEST(Recurrent, AutocastConvertsAllArguments) {
  const RecurrentArguments arguments = arguments_for<TypeParam, float>();
  RecurrentArguments halves = arguments;
  for (Tensor& tensor : halves.tensors) {
    if (tensor.defined()) tensor = tensor.detach().to(Dtype::f16);
  }
  const auto expected = detail::recurrent<TypeParam>(halves, false);
  std::vector<Tensor> found;
  {
    const AutocastGuard guard{Dtype::f16};
    found = detail::recurrent<TypeParam>(arguments, false);
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].dtype(), Dtype::f16);
    EXPECT_EQ(found[i].to(Dtype::f32).template to_vector<float>(),
              expected[i].to(Dtype::f32).template to_vector<float>());
  }
  sum(found[0]).backward();
  EXPECT_EQ(arguments[A::weight_ih].grad().dtype(), Dtype::f32);

  const AutocastGuard guard{Dtype::f16};
  EXPECT_EQ(detail::recurrent<TypeParam>(arguments_for<TypeParam>(), false)[0].dtype(), Dtype::f64);
  RecurrentArguments mixed = arguments;
  mixed.tensors[A::weight_hh] = mixed[A::weight_hh].to(Dtype::f64);
  EXPECT_TRUE(throws<DtypeError>([&] { (void)detail::recurrent<TypeParam>(mixed, false); },
                                 "weight_hh", "f32", "f64"));
}

TYPED_TEST(Recurrent, BackwardNoticesThatTheResultHasChanged) {
  const auto results = detail::recurrent<TypeParam>(arguments_for<TypeParam>(), false);
  {
    const NoGradGuard guard;
    results[0].add_(ones_like(results[0]));
  }
  EXPECT_TRUE(throws<AutogradError>([&] { sum(results[0]).backward(); }, TypeParam::name,
                                    "modified by an inplace operation"));
  const auto others = detail::recurrent<TypeParam>(arguments_for<TypeParam>(), false);
  {
    const NoGradGuard guard;
    others[1].add_(ones_like(others[1]));  // a copy: backward does not read it
  }
  EXPECT_NO_THROW(sum(others[0]).backward());
}

TYPED_TEST(Recurrent, BackwardReadsOfTheInputAndItsWeightsOnlyWhatGradientsNeed) {
  for (const auto& frozen : std::vector<std::vector<std::size_t>>{
           {A::x}, {A::weight_ih}, {A::x, A::weight_ih, A::bias_ih}}) {
    const RecurrentArguments trained = arguments_for<TypeParam>();
    sum(detail::recurrent<TypeParam>(trained, false)[0]).backward();
    const RecurrentArguments arguments = arguments_for<TypeParam>();
    for (const std::size_t i : frozen) arguments.tensors[i].requires_grad_(false);
    const auto results = detail::recurrent<TypeParam>(arguments, false);
    {
      const NoGradGuard guard;
      if (arguments[A::x].requires_grad()) arguments[A::x].zero_();  // for weight_ih alone
      if (arguments[A::weight_ih].requires_grad()) arguments[A::weight_ih].zero_();  // for x alone
    }
    EXPECT_NO_THROW(sum(results[0]).backward());
    for (std::size_t i = 0; i < A::count; ++i) {
      if (!arguments.tensors[i].defined()) continue;
      EXPECT_EQ(arguments.tensors[i].grad().defined(), arguments.tensors[i].requires_grad());
      if (!arguments.tensors[i].requires_grad()) continue;
      EXPECT_TRUE(all_close(arguments.tensors[i].grad(), trained.tensors[i].grad()));
    }
  }
}

TEST(RecurrentErrors, NameTheArgumentThatDiffers) {
  using Cell = detail::LstmCell;
  RecurrentArguments arguments = arguments_for<Cell>();
  arguments.tensors[A::c0] = zeros({kBatch, kWidth}, {.device = "cpu:0"});
  EXPECT_TRUE(throws<DtypeError>([&] { detail::recurrent<Cell>(arguments, false); }, "LSTM",
                                 "the input is of dtype f64", "c_0"));
  arguments.tensors[A::c0] = varied_leaf({kBatch, kWidth}, 3, Device("cpu:1"));
  EXPECT_TRUE(throws<DeviceError>([&] { detail::recurrent<Cell>(arguments, false); }, "LSTM",
                                  "cpu:0", "c_0", "cpu:1"));
}

TEST(RecurrentErrors, NameTheArgumentThatDoesNotFit) {
  using Cell = detail::GruCell;
  const auto expect = [](A::Argument which, const Shape& shape, const char* message) {
    RecurrentArguments arguments = arguments_for<Cell>();
    arguments.tensors[which] = varied_leaf(shape);
    EXPECT_TRUE(throws<ShapeError>([&] { detail::recurrent<Cell>(arguments, false); }, message));
  };
  expect(A::x, {3, 2}, "GRU: expected an input of shape [length, batch, features]");
  expect(A::x, {0, 2, 2}, "got shapes [0, 2, 2] and [9, 3]");
  expect(A::weight_hh, {9}, "got shapes [3, 2, 2] and [9]");
  expect(A::weight_hh, {6, 3}, "GRU: expected weight_hh of shape [9, 3]");
  expect(A::weight_ih, {9, 3}, "GRU: expected weight_ih of shape [9, 2]");
  expect(A::h0, {2, 2}, "GRU: expected h_0 of shape [2, 3]");
  expect(A::bias_hh, {3}, "GRU: expected bias_hh of shape [9] for an input of shape [3, 2, 2]");
  RecurrentArguments arguments = arguments_for<Cell>();
  arguments.tensors[A::weight_hh] = Tensor();
  EXPECT_THROW(detail::recurrent<Cell>(arguments, false), ValueError);
}

}  // namespace rnn_test
}  // namespace lockstep
