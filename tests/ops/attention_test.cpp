// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/engine.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/attention.hpp>
#include <lockstep/ops/compare.hpp>
#include <lockstep/ops/dropout.hpp>
#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/matmul.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/random.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
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

TEST(ScaledDotProductAttention, TakesAMaskOfAnotherDtypeAndOfNoKeys) {
  const Tensor x = varied<float>({4, 6});
  const Tensor mask = varied<float>({4, 4}, 1);
  EXPECT_EQ(
      scaled_dot_product_attention(x, x, x, {.attn_mask = mask.to(Dtype::f64)}).to_vector<float>(),
      scaled_dot_product_attention(x, x, x, {.attn_mask = mask}).to_vector<float>());
  const Tensor none = x.narrow(0, 0, 0);
  const Tensor blind =
      scaled_dot_product_attention(x, none, none, {.attn_mask = mask.narrow(1, 0, 0)});
  EXPECT_EQ(blind.to_vector<float>(), std::vector<float>(24));
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
  const auto next_after = [](const auto& draw) {
    manual_seed(6);
    draw();
    return dropout(ones({64}), 0.5).to_vector<float>();
  };
  EXPECT_EQ(
      next_after([&] { scaled_dot_product_attention(query, key, value, {.dropout_p = 0.25}); }),
      next_after([] {
        dropout(ones({1, 4000}), 0.25);
      }))
      << "each weight takes a number";
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

// On the host, where a mask that is trained goes another way, with all scores in memory.
TEST(ScaledDotProductAttention, HalfPrecisionIsAsExactWithAMaskThatRequiresGrad) {
  const Tensor bias = varied<float>({8, 8});
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
    for (const double factor : {5.0, 8.0}) {
      const Tensor q = (varied<float>({8, 16}, 1) * factor).to(dtype);
      const Tensor k = (varied<float>({8, 16}, 2) * factor).to(dtype);
      const Tensor v = varied<float>({8, 16}, 3).to(dtype);
      const Tensor fixed = scaled_dot_product_attention(q, k, v, {.attn_mask = bias});
      const Tensor trained = scaled_dot_product_attention(
          q, k, v, {.attn_mask = bias.detach().clone().requires_grad_()});
      EXPECT_EQ(trained.dtype(), dtype);
      const double one_rounding = dtype == Dtype::bf16 ? 1.0 / 128 : 1.0 / 1024;
      EXPECT_TRUE(all_close(trained.to(Dtype::f32), fixed.to(Dtype::f32), 1e-6, one_rounding));
    }
  }
}

// In blocks, and with all scores in memory; by a mask alone, and by one on top of is_causal.
TEST(ScaledDotProductAttention, AQueryThatSeesNothingGivesZeroAndHasNoGradient) {
  const Device device = varied({1}).device();
  const Tensor sees = from_values(std::vector<double>{0, 1, 1, 0, 0, 0}, {2, 3}, device);
  const Tensor bias = log(sees);
  const auto expect_finite = [](const Tensor& x) {
    for (const double value : x.to_vector<double>()) EXPECT_TRUE(std::isfinite(value));
  };
  for (const Tensor& mask : {eq(sees, 1), bias, bias.clone().requires_grad_()}) {
    for (const bool causal : {false, true}) {
      const Tensor query = varied_leaf({2, 4}, 1);
      const Tensor key = varied_leaf({3, 4}, 2);
      const Tensor value = varied_leaf({3, 2}, 3);
      const Tensor y = detail::attention("", query, key, value,
                                         {.attn_mask = mask, .is_causal = causal, .scale = 1});
      autograd::backward({y}, {ones_like(y)});
      const std::size_t first_blind = causal ? 0 : 2;
      const auto values = y.to_vector<double>();
      for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(values[i] == 0, i >= first_blind) << i;
      const auto slopes = query.grad().to_vector<double>();
      for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(slopes[i] == 0, i >= 2 * first_blind) << i;
      for (const Tensor& x : {key, value}) expect_finite(x.grad());
      if (mask.requires_grad()) expect_finite(mask.grad());
    }
  }
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
      {"scaled_dot_product_attention", "[2, 4]", "[2, 3]"});
  expect_error<ShapeError>(
      [&] {
        scaled_dot_product_attention(x, x, ones({3, 4}));
      },
      {"scaled_dot_product_attention", "[*, keys, any]", "[3, 4]"});
  expect_error<DtypeError>([&] { scaled_dot_product_attention(x, x, x.to(Dtype::f64)); },
                           {"scaled_dot_product_attention", "the value", "f64"});
  expect_error<DtypeError>([&] { scaled_dot_product_attention(x, x.to(Dtype::f64), x); },
                           {"scaled_dot_product_attention", "the key", "f64"});
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
  expect_error<ShapeError>(
      [&] {
        scaled_dot_product_attention(ones({1, 4}), x, x, {.attn_mask = ones({2, 2})});
      },
      {"stretches to [*, 1, 2]", "[2, 2]"});
}

// Operands of more than one block of queries and of keys.
struct Blocks {
  Tensor query = varied_leaf({2, 3, 100, 5}, 1);
  Tensor key = varied_leaf({3, 300, 5}, 2);
  Tensor value = varied_leaf({2, 1, 300, 7}, 3);

  // The output, and the gradients of the three.
  template <class F>
  std::vector<Tensor> run(const F& attend) const {
    std::vector<Tensor> results{attend(query, key, value)};
    autograd::backward({results[0]}, {varied({2, 3, 100, 7}, 4)});
    for (const Tensor& x : {query, key, value}) {
      results.push_back(x.grad());
      x.set_grad({});
    }
    return results;
  }

  // Expects what two products give, with all scores in memory between them.
  void expect_same(const AttentionOptions& options) const {
    manual_seed(3);
    const auto got = run([&](const Tensor& q, const Tensor& k, const Tensor& v) {
      return scaled_dot_product_attention(q, k, v, options);
    });
    manual_seed(3);
    const auto expected = run([&](const Tensor& q, const Tensor& k, const Tensor& v) {
      const Tensor all_k = expand(k, {2, 3, 300, 5});
      Tensor bias;
      if (options.attn_mask.defined()) bias = detail::mask_bias("", options.attn_mask, false, q);
      const auto dropout = detail::AttentionDropout::draw(options.dropout_p, q, all_k);
      return matmul(
          detail::attention_weights(q, all_k, bias, options.is_causal, dropout, 1 / std::sqrt(5.0)),
          v);
    });
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(all_close(got[i], expected[i], 1e-11, 1e-13)) << "result " << i;
    }
  }
};

TEST(ScaledDotProductAttention, BlocksGiveWhatAllScoresGive) {
  const Blocks blocks;
  blocks.expect_same({});
  blocks.expect_same({.is_causal = true});
  blocks.expect_same({.dropout_p = 0.3});
  blocks.expect_same({.dropout_p = 0.3, .is_causal = true});
  blocks.expect_same({.attn_mask = varied({100, 300}, 5)});
  blocks.expect_same({.attn_mask = varied({2, 1, 1, 300}, 6), .dropout_p = 0.5});
  // Great scores come late, and some queries see nothing of their first blocks.
  const Tensor places = arange(300, {.dtype = Dtype::f64, .device = blocks.query.device()});
  blocks.expect_same({.attn_mask = places * 0.5});
  blocks.expect_same({.attn_mask = places * -0.5});
  blocks.expect_same({.attn_mask = eq(relu(270 - places - varied({100, 1}, 7)), 0)});
  blocks.expect_same({.attn_mask = eq(relu(varied({3, 100, 300}, 8)), 0)});
}

TEST(ScaledDotProductAttention, TheSameOperandsGiveTheSameBits) {
  const Blocks blocks;
  const auto attend = [](const Tensor& q, const Tensor& k, const Tensor& v) {
    return scaled_dot_product_attention(q, k, v, {.is_causal = true});
  };
  const std::vector<Tensor> first = blocks.run(attend);
  const std::vector<Tensor> second = blocks.run(attend);
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].to_vector<double>(), second[i].to_vector<double>()) << "result " << i;
  }
}

// Heads side by side, as a projection gives them, are read and written where they lie.
TEST(ScaledDotProductAttention, TheResultLiesInTheOrderOfTheQuery) {
  const auto heads = [](const Tensor& x) { return permute(x, {1, 2, 0, 3}); };
  const Tensor query = heads(varied({6, 2, 3, 4}, 1));
  const Tensor key = heads(varied({5, 2, 3, 4}, 2));
  const Tensor value = heads(varied({5, 2, 3, 7}, 3));
  const Tensor y = scaled_dot_product_attention(query, key, value);
  EXPECT_TRUE(y.device().is_cuda() || permute(y, {2, 0, 1, 3}).is_contiguous());
  EXPECT_TRUE(all_close(
      y, scaled_dot_product_attention(query.contiguous(), key.contiguous(), value.contiguous()),
      1e-14));
  const Tensor rows = narrow(query, 2, 0, 1);  // contiguous in no direction
  const Tensor columns = transpose(transpose(key, -2, -1).contiguous(), -2, -1);
  EXPECT_TRUE(all_close(
      scaled_dot_product_attention(expand(rows, {2, 3, 6, 4}), columns, value),
      expand(scaled_dot_product_attention(rows.contiguous(), key, value), {2, 3, 6, 7}), 1e-13));
}

TEST(ScaledDotProductAttention, AMaskOfNumbersHasDerivatives) {
  const auto f = [](const Tensor& query, const Tensor& key, const Tensor& mask) {
    return scaled_dot_product_attention(query, key, key, {.attn_mask = mask});
  };
  EXPECT_TRUE(
      gradcheck(f, {varied_leaf({2, 3, 4}, 1), varied_leaf({2, 5, 4}, 2), varied_leaf({3, 5}, 3)}));
}

TEST(AttentionMemory, GrowsWithTheLengthAndNotWithItsSquare) {
  const Device device = "cpu:6";
  std::vector<std::size_t> most;
  for (std::int64_t length = 256; length <= 4096; length *= 2) {
    const auto leaf = [&](std::size_t seed) {
      return varied_leaf<float>({length, 8}, seed, device);
    };
    const Tensor query = leaf(1);
    const Tensor key = leaf(2);
    const Tensor value = leaf(3);
    const bool causal = length > 1024;  // takes half the time
    sum(scaled_dot_product_attention(query, key, value, {.is_causal = causal})).backward();
    most.push_back(memory_stats(device).peak_bytes);  // each length takes more than the one before
  }
  for (std::size_t i = 1; i < most.size(); ++i) {
    EXPECT_LE(static_cast<double>(most[i]), 2.1 * static_cast<double>(most[i - 1]));
  }
  // All scores, once, are 64 MiB. Operands, result and gradients are 128 KiB each.
  EXPECT_LE(most.back(), std::size_t{2} << 20);
}

}  // namespace attention_test
}  // namespace lockstep
