// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/engine.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/attention.hpp>
#include <lockstep/ops/compare.hpp>
#include <lockstep/ops/matmul.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/random.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "support/gradcheck.hpp"
#include "support/varied.hpp"

namespace lockstep {
namespace attention_test {

using testing::all_close;
using testing::expect_error;
using testing::gradcheck;
using testing::gradgradcheck;
using testing::varied;
using testing::varied_leaf;

// One query at a time, as the definition says.
std::vector<double> by_definition(const Tensor& query, const Tensor& key, const Tensor& value,
                                  const std::vector<std::vector<bool>>& sees, double scale) {
  const auto at = [](const Tensor& t, std::int64_t i, std::int64_t j) {
    return t.to_vector<double>()[static_cast<std::size_t>(i * t.size(1) + j)];
  };
  std::vector<double> out;
  for (std::int64_t q = 0; q < query.size(0); ++q) {
    std::vector<double> weights;
    double total = 0;
    for (std::int64_t k = 0; k < key.size(0); ++k) {
      double score = 0;
      for (std::int64_t i = 0; i < query.size(1); ++i) score += at(query, q, i) * at(key, k, i);
      const bool seen = sees[static_cast<std::size_t>(q)][static_cast<std::size_t>(k)];
      weights.push_back(seen ? std::exp(score * scale) : 0);
      total += weights.back();
    }
    for (std::int64_t i = 0; i < value.size(1); ++i) {
      double sum = 0;
      for (std::int64_t k = 0; k < key.size(0); ++k) {
        sum += weights[static_cast<std::size_t>(k)] / total * at(value, k, i);
      }
      out.push_back(sum);
    }
  }
  return out;
}

TEST(ScaledDotProductAttention, AgreesWithTheDefinition) {
  const Tensor query = varied({3, 4});
  const Tensor key = varied({5, 4}, 2);
  const Tensor value = varied({5, 2}, 3);
  const std::vector<std::vector<bool>> all(3, std::vector<bool>(5, true));
  const auto expect = [&](const Tensor& got, const std::vector<std::vector<bool>>& sees,
                          double scale) {
    const auto expected = by_definition(query, key, value, sees, scale);
    EXPECT_TRUE(all_close(got, from_values(expected, {3, 2}, query.device()), 1e-12));
  };
  expect(scaled_dot_product_attention(query, key, value), all, 0.5);
  expect(scaled_dot_product_attention(query, key, value, {.scale = 2}), all, 2);

  std::vector<std::vector<bool>> before = all;
  for (std::size_t q = 0; q < 3; ++q) {
    for (std::size_t k = q + 1; k < 5; ++k) before[q][k] = false;
  }
  expect(scaled_dot_product_attention(query, key, value, {.is_causal = true}), before, 0.5);

  const Tensor number = from_values(
      std::vector<double>{0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 0, 0, 1, 0, 0}, {3, 5}, query.device());
  std::vector<std::vector<bool>> some = all;
  some[0] = {false, true, true, false, true};
  some[2] = {false, false, true, false, false};
  const Tensor mask = eq(number, 1);
  expect(scaled_dot_product_attention(query, key, value, {.attn_mask = mask}), some, 0.5);
  const Tensor added = (1 - number) * -1e300;
  expect(scaled_dot_product_attention(query, key, value, {.attn_mask = added}), some, 0.5);
}

TEST(ScaledDotProductAttention, TakesBatchesAndStretchesTheMask) {
  const Tensor query = varied({2, 3, 4, 6});
  const Tensor key = varied({2, 3, 5, 6}, 2);
  const Tensor value = varied({2, 3, 5, 7}, 3);
  const Tensor mask = varied({2, 1, 1, 5}, 4);
  const Tensor all = scaled_dot_product_attention(query, key, value, {.attn_mask = mask});
  EXPECT_EQ(all.sizes(), (Shape{2, 3, 4, 7}));
  const Tensor one = scaled_dot_product_attention(
      select(select(query, 0, 1), 0, 2), select(select(key, 0, 1), 0, 2),
      select(select(value, 0, 1), 0, 2), {.attn_mask = reshape(select(mask, 0, 1), {1, 5})});
  EXPECT_TRUE(all_close(select(select(all, 0, 1), 0, 2), one, 1e-12));
}

TEST(ScaledDotProductAttention, HasFirstAndSecondDerivatives) {
  for (const bool causal : {false, true}) {
    const auto f = [=](const Tensor& q, const Tensor& k, const Tensor& v) {
      return scaled_dot_product_attention(q, k, v, {.is_causal = causal});
    };
    const std::vector<Tensor> inputs = {varied_leaf({2, 3, 4}, 1), varied_leaf({2, 3, 4}, 2),
                                        varied_leaf({2, 3, 2}, 3)};
    EXPECT_TRUE(gradcheck(f, inputs));
    EXPECT_TRUE(gradgradcheck(f, inputs));
  }
}

TEST(ScaledDotProductAttention, DropsWeights) {
  const Tensor query = zeros({1, 4});
  const Tensor key = zeros({4000, 4});
  const Tensor value = ones({4000, 1});
  manual_seed(5);
  const double kept =
      scaled_dot_product_attention(query, key, value, {.dropout_p = 0.25}).item<float>();
  EXPECT_NE(kept, 1);
  EXPECT_NEAR(kept, 1, 0.05);
  EXPECT_EQ(scaled_dot_product_attention(query, key, value, {.dropout_p = 1}).item<float>(), 0);
}

TEST(ScaledDotProductAttention, TakesHalfPrecision) {
  const Tensor x = varied<float>({2, 3, 4});
  const Tensor expected = scaled_dot_product_attention(x, x, x, {.is_causal = true});
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
    const Tensor half = x.to(dtype);
    const Tensor y = scaled_dot_product_attention(half, half, half, {.is_causal = true});
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_TRUE(all_close(y.to(Dtype::f32), expected, 0.02, 0.02));
    const AutocastGuard guard{dtype};
    EXPECT_EQ(scaled_dot_product_attention(x, x, x).dtype(), dtype);
  }
}

TEST(ScaledDotProductAttention, AQueryThatSeesNothingGivesNan) {
  const Tensor mask = eq(zeros({1, 2}), 1);
  const Tensor y =
      scaled_dot_product_attention(ones({1, 2}), ones({2, 2}), ones({2, 1}), {.attn_mask = mask});
  EXPECT_TRUE(std::isnan(y.item<float>()));
}

TEST(ScaledDotProductAttention, SaysWhatDoesNotFit) {
  const Tensor x = ones({2, 4});
  const auto run = [&](const AttentionOptions& options) {
    scaled_dot_product_attention(x, x, x, options);
  };
  expect_error<ShapeError>([&] { scaled_dot_product_attention(ones({4}), x, x); },
                           {"scaled_dot_product_attention", "at least 2 dimensions", "[4]"});
  expect_error<ShapeError>(
      [&] {
        scaled_dot_product_attention(x, ones({2, 3}), x);
      },
      {"matmul", "[2, 4]"});
  expect_error<ValueError>([&] { run({.dropout_p = 2}); }, {"scaled_dot_product_attention", "2"});
  expect_error<ValueError>(
      [&] {
        run({.attn_mask = ones({2, 2}), .is_causal = true});
      },
      {"attn_mask or is_causal"});
  expect_error<DtypeError>(
      [&] {
        run({.attn_mask = ones({2, 2}, {.dtype = Dtype::i64})});
      },
      {"mask", "i64"});
  expect_error<ShapeError>([&] { run({.attn_mask = ones({3, 2})}); }, {"[3, 2]"});
}

}  // namespace attention_test
}  // namespace lockstep
