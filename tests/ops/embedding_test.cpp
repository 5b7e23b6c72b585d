// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/ops/embedding.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "support/gradcheck.hpp"
#include "support/varied.hpp"

namespace lockstep {
namespace embedding_test {

using testing::expect_error;
using testing::gradcheck;
using testing::gradgradcheck;
using testing::varied;
using testing::varied_leaf;

using Values = std::vector<double>;
using Indices = std::vector<std::int64_t>;

Tensor at(const Indices& indices, const Shape& shape) {
  return from_values(indices, shape, Device("cpu:0"));
}

Tensor table() { return from_values(Values{0, 1, 10, 11, 20, 21}, {3, 2}, Device("cpu:0")); }

TEST(Embedding, TakesARowForEachIndexOfAnyShape) {
  const Tensor weight = table();
  EXPECT_EQ(embedding(at({2, 0, 2}, {3}), weight).to_vector<double>(),
            (Values{20, 21, 0, 1, 20, 21}));
  EXPECT_EQ(embedding(at({2, 0, 2, 1}, {2, 2}), weight).sizes(), (Shape{2, 2, 2}));
  EXPECT_EQ(embedding(at({1}, {}), weight).to_vector<double>(), (Values{10, 11}));
  EXPECT_EQ(embedding(at({1}, {}), weight).sizes(), Shape{2});
  EXPECT_EQ(embedding(at({}, {0, 4}), weight).sizes(), (Shape{0, 4, 2}));
  EXPECT_EQ(embedding(at({2, 1}, {2}).to(Dtype::i32), weight).to_vector<double>(),
            (Values{20, 21, 10, 11}));
  EXPECT_EQ(embedding(at({0, 1, 2, 0}, {2, 2}).t(), weight).to_vector<double>(),
            (Values{0, 1, 20, 21, 10, 11, 0, 1}));
}

TEST(Embedding, AddsTheGradientsOfEachRow) {
  const Tensor weight = table().requires_grad_();
  const Tensor grad = from_values(Values{1, 2, 3, 4, 5, 6}, {3, 2}, Device("cpu:0"));
  embedding(at({2, 0, 2}, {3}), weight).backward(grad);
  EXPECT_EQ(weight.grad().to_vector<double>(), (Values{3, 4, 0, 0, 6, 8}));
}

// As that of a sum of words' vectors does, whose memory has each row once.
TEST(Embedding, AddsAGradientWhoseRowsRepeat) {
  const auto grad_of = [](const Indices& indices, const Shape& shape, const Tensor& grad) {
    const Tensor weight = table().requires_grad_();
    embedding(at(indices, shape), weight).backward(grad);
    return weight.grad().to_vector<double>();
  };
  const Tensor grad = from_values(Values{1, 2, 10, 20}, {2, 1, 2}, Device("cpu:0"));
  EXPECT_EQ(grad_of({2, 0, 2, 1, 0, 2}, {2, 3}, grad.expand({2, 3, 2})),
            (Values{11, 22, 10, 20, 12, 24}));
  EXPECT_EQ(grad_of({2, 0, 2}, {3}, grad.select(0, 1).expand({3, 2})),
            (Values{10, 20, 0, 0, 20, 40}));
  EXPECT_EQ(grad_of({}, {2, 0}, grad.expand({2, 1, 2}).narrow(1, 0, 0)), (Values(6, 0)));
  const Tensor weight = table().requires_grad_();
  mean(embedding(at({2, 0, 2, 1}, {2, 2}), weight), {1}).backward(grad.reshape({2, 2}));
  EXPECT_EQ(weight.grad().to_vector<double>(), (Values{0.5, 1, 5, 10, 5.5, 11}));
}

TEST(Embedding, TheRowOfThePaddingIsReadButGetsNoGradient) {
  for (const std::int64_t padding : {2, -1}) {
    const Tensor weight = table().requires_grad_();
    const Tensor y = embedding(at({2, 0, 2}, {3}), weight, padding);
    EXPECT_EQ(y.to_vector<double>(), (Values{20, 21, 0, 1, 20, 21}));
    y.sum().backward();
    EXPECT_EQ(weight.grad().to_vector<double>(), (Values{1, 1, 0, 0, 0, 0}));
  }
}

TEST(Embedding, HasFirstAndSecondDerivatives) {
  const Tensor indices = at({2, 0, 2, 1, 2, 4}, {2, 3});
  const auto plain = [&](const Tensor& weight) { return embedding(indices, weight); };
  EXPECT_TRUE(gradcheck(plain, {varied_leaf({5, 3})}));
  EXPECT_TRUE(gradgradcheck(plain, {varied_leaf({5, 3})}));
  // The padding's row is read but passes no gradient, so that only the gradient is smooth.
  const auto gradient = [&](const Tensor& given) {
    const GradModeGuard guard(true);
    const Tensor weight = varied_leaf({5, 3});
    return autograd::grad({embedding(indices, weight, 2)}, {weight}, {given}, true, true)[0];
  };
  EXPECT_TRUE(gradcheck(gradient, {varied_leaf({2, 3, 3})}));
}

TEST(Embedding, TakesHalfPrecision) {
  const Tensor weight = table().to(Dtype::bf16).requires_grad_();
  const Tensor y = embedding(at({2, 2}, {2}), weight);
  EXPECT_EQ(y.dtype(), Dtype::bf16);
  EXPECT_EQ(y.to(Dtype::f32).to_vector<float>(), (std::vector<float>{20, 21, 20, 21}));
  y.sum().backward();
  EXPECT_EQ(weight.grad().to(Dtype::f32).to_vector<float>(),
            (std::vector<float>{0, 0, 0, 0, 2, 2}));
}

TEST(Embedding, AnIndexOutsideIsNamedWithItsPlace) {
  const Tensor weight = table();
  // On a GPU the error comes when the host waits for the values.
  expect_error<IndexError>(
      [&] {
        (void)embedding(at({0, 1, 2, 3}, {2, 2}), weight).sum().item();
      },
      {"index 3", "position 3", "3 embeddings", "0 to 2"});
  expect_error<IndexError>(
      [&] {
        (void)embedding(at({0, -1}, {2}), weight).sum().item();
      },
      {"-1", "position 1"});
  expect_error<IndexError>(
      [&] {
        (void)embedding(at({0}, {1}), varied({0, 2})).sum().item();
      },
      {"0 embeddings"});
  if (!weight.device().is_cpu()) return;  // a GPU looks where it takes elements
  expect_error<IndexError>([&] { (void)embedding(at({7}, {1}), varied({3, 0})); }, {"index 7"});
}

TEST(Embedding, RefusesOtherArguments) {
  const Tensor weight = table();
  expect_error<DtypeError>([&] { embedding(varied({2}), weight); }, {"i64 or i32", "f64"});
  expect_error<DtypeError>([&] { embedding(at({0}, {1}), weight.to(Dtype::i64)); },
                           {"embedding", "floating-point", "i64"});
  expect_error<ShapeError>([&] { embedding(at({0}, {1}), varied({2})); }, {"[2]"});
  expect_error<ValueError>([&] { embedding(at({0}, {1}), weight, 3); }, {"padding_idx", "got 3"});
  expect_error<ValueError>([&] { embedding(at({0}, {1}), weight, -4); }, {"got -4"});
  expect_error<DeviceError>([&] { embedding(at({0}, {1}).to(Device("cpu:1")), weight); },
                            {"cpu:1", "cpu:0"});
}

}  // namespace embedding_test
}  // namespace lockstep
