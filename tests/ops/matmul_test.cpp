// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/matmul.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "support/gradcheck.hpp"
#include "support/varied.hpp"

namespace lockstep {
namespace matmul_test {

using testing::expect_error;
using testing::gradcheck;
using testing::gradgradcheck;
using testing::varied;
using testing::varied_leaf;

// Transposed in memory, the same values.
Tensor stored_by_columns(const Tensor& matrix) {
  const std::vector<double> values = matrix.to_vector<double>();
  const auto rows = static_cast<std::size_t>(matrix.size(0));
  const auto cols = static_cast<std::size_t>(matrix.size(1));
  std::vector<double> turned(values.size());
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < cols; ++j) turned[j * rows + i] = values[i * cols + j];
  }
  const Tensor base = from_values(turned, {matrix.size(1), matrix.size(0)}, matrix.device());
  return detail::make_view(base, matrix.sizes(), {1, matrix.size(0)}, 0);
}

TEST(Matmul, MultipliesTwoMatrices) {
  const Tensor a = from_values(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor b = from_values(std::vector<float>{1, 0, 0, 1, 2, 2}, {3, 2});
  const Tensor c = matmul(a, b);
  EXPECT_EQ(c.sizes(), (Shape{2, 2}));
  EXPECT_EQ(c.to_vector<float>(), (std::vector<float>{7, 8, 16, 17}));
}

TEST(Matmul, TakesVectorsOnEitherSide) {
  const Tensor m = from_values(std::vector<double>{1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor v = tensor<double>({1, 10, 100});
  const Tensor w = tensor<double>({1, 10});
  EXPECT_EQ(matmul(v, v).sizes(), Shape{});
  EXPECT_EQ(matmul(v, v).item<double>(), 10101);
  EXPECT_EQ(matmul(m, v).sizes(), Shape{2});
  EXPECT_EQ(matmul(m, v).to_vector<double>(), (std::vector<double>{321, 654}));
  EXPECT_EQ(matmul(w, m).sizes(), Shape{3});
  EXPECT_EQ(matmul(w, m).to_vector<double>(), (std::vector<double>{41, 52, 63}));
}

TEST(Matmul, BroadcastsBatches) {
  const Tensor a = varied({2, 1, 3, 4});
  const Tensor b = varied({5, 4, 2}, 1);
  const Tensor c = matmul(a, b);
  ASSERT_EQ(c.sizes(), (Shape{2, 5, 3, 2}));
  const std::vector<double> in_a = a.to_vector<double>();
  const std::vector<double> in_b = b.to_vector<double>();
  const std::vector<double> out = c.to_vector<double>();
  std::size_t at = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    for (std::size_t j = 0; j < 5; ++j) {
      for (std::size_t row = 0; row < 3; ++row) {
        for (std::size_t col = 0; col < 2; ++col, ++at) {
          double sum = 0;
          for (std::size_t p = 0; p < 4; ++p) {
            sum += in_a[(i * 3 + row) * 4 + p] * in_b[(j * 4 + p) * 2 + col];
          }
          EXPECT_NEAR(out[at], sum, 1e-14);
        }
      }
    }
  }
  EXPECT_EQ(matmul(varied({2, 3, 4}), varied({4, 5})).sizes(), (Shape{2, 3, 5}));
  EXPECT_EQ(matmul(varied({3, 4}), varied({2, 4, 5})).sizes(), (Shape{2, 3, 5}));
  EXPECT_EQ(matmul(varied({2, 3, 4}), varied({4})).sizes(), (Shape{2, 3}));
  EXPECT_EQ(matmul(varied({4}), varied({2, 4, 3})).sizes(), (Shape{2, 3}));
}

TEST(Matmul, MultipliesMatricesWhereverTheyLie) {
  const Tensor a = varied({3, 4});
  const Tensor b = varied({4, 5}, 1);
  const std::vector<double> expected = matmul(a, b).to_vector<double>();
  EXPECT_EQ(matmul(stored_by_columns(a), b).to_vector<double>(), expected);
  EXPECT_EQ(matmul(a, stored_by_columns(b)).to_vector<double>(), expected);
  EXPECT_EQ(matmul(stored_by_columns(a), stored_by_columns(b)).to_vector<double>(), expected);
  // Columns 0, 2, 4 … of a wider matrix, which no BLAS takes.
  const Tensor every_other = detail::make_view(varied({4, 8}, 2), {4, 4}, {8, 2}, 0);
  const Tensor contiguous = from_values(every_other.to_vector<double>(), {4, 4}, Device("cpu:0"));
  EXPECT_EQ(matmul(a, every_other).to_vector<double>(), matmul(a, contiguous).to_vector<double>());
  // One row stretched over all, with a stride of 0.
  const Tensor stretched = expand(varied({1, 4}, 3), {4, 4});
  const Tensor full = from_values(stretched.to_vector<double>(), {4, 4}, Device("cpu:0"));
  EXPECT_EQ(matmul(a, stretched).to_vector<double>(), matmul(a, full).to_vector<double>());
  EXPECT_EQ(matmul(stretched, b).to_vector<double>(), matmul(full, b).to_vector<double>());
}

TEST(Matmul, OfEmptyMatricesIsEmptyOrZero) {
  EXPECT_EQ(matmul(varied({0, 3}), varied({3, 2})).sizes(), (Shape{0, 2}));
  EXPECT_EQ(matmul(varied({2, 3}), varied({3, 0})).sizes(), (Shape{2, 0}));
  EXPECT_EQ(matmul(varied({2, 0}), varied({0, 2})).to_vector<double>(), std::vector<double>(4, 0));
  EXPECT_EQ(matmul(varied({4, 2, 3}), varied({3, 0})).sizes(), (Shape{4, 2, 0}));
  EXPECT_EQ(matmul(varied({0, 2, 3}), varied({3, 2})).sizes(), (Shape{0, 2, 2}));
}

TEST(Matmul, HasFirstAndSecondDerivatives) {
  const std::vector<std::vector<Shape>> shapes = {
      {{3, 4}, {4, 2}},    {{4}, {4}},
      {{3, 4}, {4}},       {{4}, {4, 2}},
      {{2, 3, 4}, {4, 2}}, {{2, 3, 4}, {2, 4, 2}},
      {{3, 4}, {2, 4, 2}}, {{2, 1, 2, 3}, {2, 3, 2}},
  };
  const auto f = [](const Tensor& a, const Tensor& b) { return matmul(a, b); };
  for (const auto& pair : shapes) {
    const std::vector<Tensor> inputs = {varied_leaf(pair[0]), varied_leaf(pair[1], 1)};
    EXPECT_TRUE(gradcheck(f, inputs)) << pair[0] << pair[1];
    EXPECT_TRUE(gradgradcheck(f, inputs)) << pair[0] << pair[1];
  }
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      const auto g = [=](const Tensor& a, const Tensor& b) {
        return detail::mm(a, b, trans_a, trans_b);
      };
      const std::vector<Tensor> inputs = {varied_leaf(trans_a ? Shape{4, 3} : Shape{3, 4}),
                                          varied_leaf(trans_b ? Shape{2, 4} : Shape{4, 2}, 1)};
      EXPECT_TRUE(gradcheck(g, inputs)) << trans_a << trans_b;
      EXPECT_TRUE(gradgradcheck(g, inputs)) << trans_a << trans_b;
    }
  }
}

TEST(Matmul, ComputesOnlyTheGradientsThatAreAskedFor) {
  const Tensor a = varied_leaf({3, 4});
  const Tensor b = varied({4, 2}, 1);
  matmul(a, b).backward(varied({3, 2}, 2));
  EXPECT_TRUE(a.grad().defined());
  EXPECT_FALSE(b.grad().defined());
}

TEST(Matmul, NamesBothOperandsInItsErrors) {
  const Tensor a = varied({3, 4});
  expect_error<ShapeError>([&] { matmul(a, varied({3, 4})); }, {"matmul", "[3, 4]", "4 != 3"});
  expect_error<ShapeError>([&] { matmul(a, varied({5})); }, {"[3, 4]", "[5]"});
  expect_error<ShapeError>([&] { matmul(a, varied({})); }, {"[3, 4]", "[]"});
  expect_error<ShapeError>([&] { matmul(varied({2, 3, 4}), varied({3, 4, 2})); }, {"[2]", "[3]"});
  expect_error<DtypeError>([&] { matmul(a, varied<float>({4, 2})); }, {"matmul", "f64", "f32"});
  expect_error<DeviceError>(
      [&] {
        matmul(a, varied({4, 2}, 0, Device("cpu:1")));
      },
      {"matmul", "cpu:0", "cpu:1"});
  const Tensor whole = zeros({2, 2}, {.dtype = Dtype::i64});
  expect_error<DtypeError>([&] { matmul(whole, whole); }, {"matmul", "i64"});
}

TEST(Matmul, OfNothingMayBeOfSizesWhoseProductNoNumberHolds) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 62;
  EXPECT_EQ(matmul(zeros({0, kLarge, kLarge}), zeros({0, kLarge, kLarge})).sizes(),
            (Shape{0, kLarge, kLarge}));
  const Tensor rows = zeros({kLarge, 0, 4});
  EXPECT_EQ(matmul(rows, rows.transpose(1, 2)).sizes(), (Shape{kLarge, 0, 0}));
}

TEST(Matmul, KeepsNoOperandThatNoGradientNeeds) {
  for (const bool frozen : {false, true}) {
    Tensor x = varied_leaf({2, 3}) * 1;
    const Tensor weight = varied({3, 4}).requires_grad_(!frozen);
    const std::weak_ptr<detail::TensorImpl> kept = x.impl();
    const Tensor y = matmul(x, weight);
    x = {};
    EXPECT_EQ(kept.expired(), frozen);
  }
}

}  // namespace matmul_test
}  // namespace lockstep
