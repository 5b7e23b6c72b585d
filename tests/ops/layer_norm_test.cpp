// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/engine.hpp>
#include <lockstep/ops/layer_norm.hpp>
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
namespace layer_norm_test {

using testing::all_close;
using testing::expect_error;
using testing::gradcheck;
using testing::gradgradcheck;
using testing::varied;
using testing::varied_leaf;

using Values = std::vector<double>;

// The formula of torch's documentation, part by part.
Tensor by_formula(const Tensor& x, std::size_t width, const Tensor& weight, const Tensor& bias,
                  double eps) {
  Values y = x.to_vector<double>();
  const Values w = weight.defined() ? weight.to_vector<double>() : Values(width, 1);
  const Values b = bias.defined() ? bias.to_vector<double>() : Values(width, 0);
  const auto count = static_cast<double>(width);
  for (std::size_t first = 0; first < y.size(); first += width) {
    double mean = 0;
    double var = 0;
    for (std::size_t i = 0; i < width; ++i) mean += y[first + i] / count;
    for (std::size_t i = 0; i < width; ++i) var += std::pow(y[first + i] - mean, 2) / count;
    for (std::size_t i = 0; i < width; ++i) {
      y[first + i] = (y[first + i] - mean) / std::sqrt(var + eps) * w[i] + b[i];
    }
  }
  return from_values(y, x.sizes(), x.device());
}

TEST(LayerNorm, NormalisesTheLastDimensions) {
  const Tensor x = varied({2, 3, 4, 5});
  for (const Shape& shape : {Shape{5}, Shape{4, 5}, Shape{2, 3, 4, 5}}) {
    const auto width = static_cast<std::size_t>(numel(shape));
    const Tensor weight = varied(shape, 1);
    const Tensor bias = varied(shape, 2);
    EXPECT_TRUE(all_close(layer_norm(x, shape), by_formula(x, width, {}, {}, 1e-5), 1e-10));
    EXPECT_TRUE(all_close(layer_norm(x, shape, weight, bias, 1e-3),
                          by_formula(x, width, weight, bias, 1e-3), 1e-10));
    EXPECT_TRUE(
        all_close(layer_norm(x, shape, weight), by_formula(x, width, weight, {}, 1e-5), 1e-10));
    EXPECT_TRUE(
        all_close(layer_norm(x, shape, {}, bias), by_formula(x, width, {}, bias, 1e-5), 1e-10));
  }
  const Tensor strided = x.transpose(0, 2);
  EXPECT_TRUE(all_close(layer_norm(strided, {5}), by_formula(strided.contiguous(), 5, {}, {}, 1e-5),
                        1e-10));
}

TEST(LayerNorm, HasFirstAndSecondDerivatives) {
  for (const Shape& shape : {Shape{4}, Shape{2, 4}}) {
    const auto f = [&](const std::vector<Tensor>& in) {
      return layer_norm(in[0], shape, in.size() > 1 ? in[1] : Tensor(),
                        in.size() > 1 ? in[2] : Tensor());
    };
    const Tensor x = varied_leaf({3, 2, 4});
    EXPECT_TRUE(gradcheck(f, {x})) << shape;
    EXPECT_TRUE(gradgradcheck(f, {x})) << shape;
    const std::vector<Tensor> all = {x, varied_leaf(shape, 1), varied_leaf(shape, 2)};
    EXPECT_TRUE(gradcheck(f, all)) << shape;
    EXPECT_TRUE(gradgradcheck(f, all)) << shape;
  }
}

// A GPU takes rows of 1024 elements and more in another way.
TEST(LayerNorm, LongRowsAreWhatTheirFormulasSay) {
  for (const std::size_t width : {std::size_t{1023}, std::size_t{1024}, std::size_t{2500}}) {
    const Shape shape{static_cast<std::int64_t>(width)};
    const Shape rows{3, shape[0]};
    const std::vector<Tensor> in = {varied_leaf(rows), varied_leaf(shape, 1),
                                    varied_leaf(shape, 2)};
    const Tensor y = layer_norm(in[0], shape, in[1], in[2]);
    EXPECT_TRUE(all_close(y, by_formula(in[0], width, in[1], in[2], 1e-5), 1e-10)) << width;
    const Tensor gradient = varied(rows, 3);
    y.backward(gradient);
    const Values x = in[0].to_vector<double>();
    const Values normalised = by_formula(in[0], width, {}, {}, 1e-5).to_vector<double>();
    const Values w = in[1].to_vector<double>();
    const Values g = gradient.to_vector<double>();
    Values of_x(x.size());
    Values of_weight(width);
    Values of_bias(width);
    for (std::size_t first = 0; first < x.size(); first += width) {
      const auto count = static_cast<double>(width);
      double mean = 0;
      double var = 0;
      double shift = 0;
      double slope = 0;
      for (std::size_t i = 0; i < width; ++i) mean += x[first + i] / count;
      for (std::size_t i = 0; i < width; ++i) {
        var += std::pow(x[first + i] - mean, 2) / count;
        shift += g[first + i] * w[i] / count;
        slope += g[first + i] * w[i] * normalised[first + i] / count;
        of_weight[i] += g[first + i] * normalised[first + i];
        of_bias[i] += g[first + i];
      }
      for (std::size_t i = 0; i < width; ++i) {
        of_x[first + i] =
            (g[first + i] * w[i] - shift - normalised[first + i] * slope) / std::sqrt(var + 1e-5);
      }
    }
    EXPECT_TRUE(all_close(in[0].grad(), from_values(of_x, rows), 1e-9, 1e-12)) << width;
    EXPECT_TRUE(all_close(in[1].grad(), from_values(of_weight, shape), 1e-9, 1e-12)) << width;
    EXPECT_TRUE(all_close(in[2].grad(), from_values(of_bias, shape), 1e-9, 1e-12)) << width;
  }
}

TEST(LayerNorm, AnEmptyBatchStaysEmpty) {
  const Tensor x = varied_leaf({0, 3});
  const Tensor weight = varied_leaf({3}, 1);
  const Tensor bias = varied_leaf({3}, 2);
  const Tensor y = layer_norm(x, {3}, weight, bias);
  EXPECT_EQ(y.sizes(), (Shape{0, 3}));
  y.backward(varied({0, 3}));
  EXPECT_EQ(x.grad().sizes(), (Shape{0, 3}));
  EXPECT_EQ(weight.grad().to_vector<double>(), Values(3, 0));
  EXPECT_EQ(bias.grad().to_vector<double>(), Values(3, 0));
}

TEST(LayerNorm, ARowOfEqualElementsBecomesTheBias) {
  const Tensor x = full({2, 100}, 1e8F).requires_grad_();
  const Tensor y = layer_norm(x, {100}, ones({100}), full({100}, 3));
  EXPECT_EQ(y.to_vector<float>(), std::vector<float>(200, 3));
  y.backward(ones({2, 100}));
  EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>(200, 0));
}

// Each gradient alone is what it is beside the others.
TEST(LayerNorm, GradientsThatNobodyWantsChangeNoOther) {
  const Tensor gradient = varied({3, 2, 4}, 3);
  std::vector<Values> all;
  for (int wanted = 7; wanted > 0; --wanted) {
    const std::vector<Tensor> in = {varied({3, 2, 4}), varied({2, 4}, 1), varied({2, 4}, 2)};
    for (int i = 0; i < 3; ++i) in[static_cast<std::size_t>(i)].requires_grad_((wanted >> i) & 1);
    layer_norm(in[0], {2, 4}, in[1], in[2]).backward(gradient);
    for (std::size_t i = 0; i < 3; ++i) {
      if (wanted == 7) all.push_back(in[i].grad().to_vector<double>());
      const bool is_wanted = ((wanted >> i) & 1) != 0;
      ASSERT_EQ(in[i].grad().defined(), is_wanted);
      if (is_wanted) {
        EXPECT_EQ(in[i].grad().to_vector<double>(), all[i]) << wanted;
      }
    }
  }
}

// As the gradient of a part of a batch is, that gather's backward has divided.
TEST(LayerNorm, TakesAGradientThatBeginsWithinItsMemory) {
  const Tensor whole = varied({5, 4}, 3);
  const auto gradients = [](const Tensor& gradient) {
    const Tensor x = varied_leaf({3, 4});
    const Tensor weight = varied_leaf({4}, 1);
    const Tensor bias = varied_leaf({4}, 2);
    layer_norm(x, {4}, weight, bias).backward(gradient);
    return std::vector<Values>{x.grad().to_vector<double>(), weight.grad().to_vector<double>(),
                               bias.grad().to_vector<double>()};
  };
  const Tensor part = narrow(whole, 0, 2, 3);
  ASSERT_TRUE(part.is_contiguous());
  EXPECT_EQ(gradients(part), gradients(part.clone()));
}

TEST(LayerNorm, HalfPrecisionIsComputedInF32) {
  const Tensor x = varied<float>({3, 6}).to(Dtype::bf16);
  const Tensor weight = varied<float>({6}, 1);
  const Tensor wide = layer_norm(x.to(Dtype::f32), {6}, weight);
  const Tensor y = layer_norm(x, {6}, weight);
  EXPECT_EQ(y.dtype(), Dtype::bf16);
  EXPECT_EQ(y.to(Dtype::f32).to_vector<float>(),
            wide.to(Dtype::bf16).to(Dtype::f32).to_vector<float>());
  const AutocastGuard autocast(Dtype::bf16);
  EXPECT_EQ(layer_norm(x, {6}, weight).to_vector<float>(), wide.to_vector<float>());
}

TEST(LayerNorm, NamesWhatDoesNotFit) {
  const Tensor x = varied({2, 3});
  expect_error<ShapeError>([&] { layer_norm(x, {2}); }, {"normalized_shape = [2]", "[2, 3]"});
  expect_error<ShapeError>([&] { layer_norm(x, {}); }, {"normalized_shape"});
  expect_error<ShapeError>([&] { layer_norm(x, {1, 2, 3}); }, {"[1, 2, 3]"});
  expect_error<ShapeError>([&] { layer_norm(x, {3}, varied({2})); }, {"weight", "[3]", "[2]"});
  expect_error<DtypeError>([&] { layer_norm(x, {3}, {}, varied<float>({3})); }, {"bias", "f32"});
  expect_error<DeviceError>([&] { layer_norm(x, {3}, varied({3}, 0, Device("cpu:1"))); },
                            {"weight", "cpu:1"});
}

}  // namespace layer_norm_test
}  // namespace lockstep
