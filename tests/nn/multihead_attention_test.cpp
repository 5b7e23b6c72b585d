// SPDX-License-Identifier: Apache-2.0
#include "nn/torch_numbers.hpp"

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/module/concepts.hpp>
#include <lockstep/nn/multihead_attention.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/compare.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/random.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "nn/support.hpp"
#include "support/gradcheck.hpp"
#include "support/varied.hpp"

namespace lockstep {
namespace multihead_attention_test {

using testing::agrees_with_torch;
using testing::all_close;
using testing::gradcheck;
using testing::greatest_magnitude;
using testing::message_of;
using testing::parameter_names;
using testing::varied;
using testing::varied_leaf;
using Inputs = std::vector<Tensor>;

static_assert(Module<nn::MultiheadAttention>);

nn::MultiheadAttentionOptions in_f64(bool bias, bool batch_first) {
  return {.bias = bias, .batch_first = batch_first, .dtype = Dtype::f64, .device = "cpu:0"};
}

TEST(MultiheadAttention, AgreesWithTorch) {
  const auto itself = [](const nn::MultiheadAttention& attention, const Inputs& x) {
    return attention(x.at(0), x.at(0), x.at(0));
  };
  EXPECT_TRUE(agrees_with_torch({"attention", "self"},
                                nn::MultiheadAttention{6, 2, in_f64(true, false)}, itself));
  EXPECT_TRUE(agrees_with_torch({"attention", "unbatched"},
                                nn::MultiheadAttention{6, 2, in_f64(false, false)}, itself));
  EXPECT_TRUE(agrees_with_torch({"attention", "cross"},
                                nn::MultiheadAttention{6, 2, in_f64(true, true)},
                                [](const nn::MultiheadAttention& attention, const Inputs& x) {
                                  return attention(x.at(0), x.at(1), x.at(2));
                                }));
}

TEST(MultiheadAttention, TakesMasksAsTorchDoes) {
  EXPECT_TRUE(
      agrees_with_torch({"attention", "masks"}, nn::MultiheadAttention{6, 2, in_f64(true, true)},
                        [](const nn::MultiheadAttention& attention, const Inputs& x) {
                          return attention(x.at(0), x.at(1), x.at(2),
                                           {.key_padding_mask = x.at(4), .attn_mask = x.at(3)});
                        }));
  EXPECT_TRUE(agrees_with_torch(
      {"attention", "mask_a_head"}, nn::MultiheadAttention{6, 2, in_f64(true, true)},
      [](const nn::MultiheadAttention& attention, const Inputs& x) {
        return attention(x.at(0), x.at(1), x.at(2),
                         {.attn_mask = x.at(3), .average_attn_weights = false});
      }));
}

TEST(MultiheadAttention, WithoutABatchItsMaskHasNoneEither) {
  const nn::MultiheadAttention attention{6, 2, in_f64(false, true)};
  const Tensor query = varied({3, 6});
  const Tensor key = varied({4, 6}, 1);
  const Tensor padding = tensor({false, true, false, false}, "cpu:0");
  const auto [alone, weights] = attention(query, key, key, {.key_padding_mask = padding});
  const Tensor keys = key.unsqueeze(0);
  const auto [batch, same] =
      attention(query.unsqueeze(0), keys, keys, {.key_padding_mask = padding.unsqueeze(0)});
  EXPECT_TRUE(all_close(alone, batch.squeeze(0), 1e-12));
  EXPECT_TRUE(all_close(weights, same.squeeze(0), 1e-12));
  EXPECT_EQ(weights.to_vector<double>()[1], 0);
}

TEST(MultiheadAttention, BooleanAndAddedMasksAreTheSame) {
  const nn::MultiheadAttention attention{4, 2, in_f64(true, true)};
  const Tensor x = varied({2, 3, 4});
  const Tensor number = from_values(std::vector<double>{0, 0, 1, 0, 1, 1}, {2, 3}, Device("cpu:0"));
  const auto [by_bool, weights] =
      attention(x, x, x, {.key_padding_mask = eq(number, 1), .is_causal = true});
  const auto [by_number, same] =
      attention(x, x, x, {.key_padding_mask = number * -1e300, .is_causal = true});
  EXPECT_TRUE(all_close(by_bool, by_number, 1e-12));
  EXPECT_TRUE(all_close(weights, same, 1e-12));
  // The first query of all sees itself alone; the second sample has no other key.
  EXPECT_EQ(weights.to_vector<double>()[1], 0);
  EXPECT_EQ(weights.to_vector<double>()[9], 1);
  EXPECT_EQ(weights.to_vector<double>()[12], 1);
}

TEST(MultiheadAttention, WeightsAreLeftOutWhereNobodyWantsThem) {
  const nn::MultiheadAttention attention{4, 2};
  const Tensor x = ones({3, 1, 4});
  const auto [y, none] = attention(x, x, x, {.need_weights = false});
  EXPECT_EQ(y.sizes(), x.sizes());
  EXPECT_FALSE(none.defined());
  const auto each = std::get<1>(attention(x, x, x, {.average_attn_weights = false}));
  EXPECT_EQ(each.sizes(), (Shape{1, 2, 3, 3}));
}

// Scores that f16 cannot hold, all alike.
TEST(MultiheadAttention, ScoresOfHalfPrecisionAreInF32) {
  const nn::MultiheadAttention attention{64, 1};
  attention.in_proj_weight.detach().fill_(0.1);
  const Tensor x = full({4, 1, 64}, 600);
  const AutocastGuard guard{Dtype::f16};
  const Tensor weights = std::get<1>(attention(x, x, x));
  EXPECT_EQ(weights.dtype(), Dtype::f16);
  EXPECT_EQ(weights.to(Dtype::f32).to_vector<float>(), std::vector<float>(16, 0.25F));
}

TEST(MultiheadAttention, HasTorchsNamesAndFirstValues) {
  const nn::MultiheadAttention attention{64, 4};
  EXPECT_EQ(parameter_names(attention),
            (std::vector<std::string>{"in_proj_weight", "in_proj_bias", "out_proj.weight",
                                      "out_proj.bias"}));
  EXPECT_EQ(attention.in_proj_weight.sizes(), (Shape{192, 64}));
  EXPECT_EQ(greatest_magnitude(attention.in_proj_bias), 0);
  EXPECT_EQ(greatest_magnitude(attention.out_proj.bias), 0);
  const double bound = std::sqrt(6.0 / (192 + 64));  // xavier_uniform_
  EXPECT_LE(greatest_magnitude(attention.in_proj_weight), bound);
  EXPECT_GT(greatest_magnitude(attention.in_proj_weight), 0.99 * bound);
}

TEST(MultiheadAttention, HasDerivatives) {
  const nn::MultiheadAttention attention{4, 2, in_f64(true, false)};
  EXPECT_TRUE(gradcheck(
      [&](const Tensor& q, const Tensor& k, const Tensor& v) {
        return std::get<0>(attention(q, k, v, {.is_causal = true}));
      },
      {varied_leaf({3, 2, 4}, 1), varied_leaf({3, 2, 4}, 2), varied_leaf({3, 2, 4}, 3)}));
}

TEST(MultiheadAttention, DropsWeightsInTrainingAlone) {
  nn::MultiheadAttention attention{4, 1, {.dropout = 0.5}};
  const Tensor x = ones({8, 1, 4});
  const auto dropped = [&] {
    const Tensor weights = std::get<1>(attention(x, x, x));
    const std::vector<float> values = weights.to_vector<float>();
    return static_cast<int>(std::count(values.begin(), values.end(), 0.0F));
  };
  EXPECT_GT(dropped(), 0);
  attention.training = false;
  EXPECT_EQ(dropped(), 0);
}

struct SelfAttention {
  nn::MultiheadAttention attention;
  Tensor forward(const Tensor& x) const { return std::get<0>(attention(x, x, x)); }
};

// In torch's layout the batch is dimension 1.
TEST(MultiheadAttention, DataParallelSplitsItsBatch) {
  const nn::MultiheadAttention attention{4, 2, in_f64(true, false)};
  const Tensor x = varied_leaf({3, 5, 4});
  const Tensor alone = SelfAttention{attention}.forward(x);
  DataParallel model{SelfAttention{attention}, {"cpu:0", "cpu:1"}, {.dim = 1}};
  const Tensor together = model(x);
  EXPECT_TRUE(all_close(together, alone, 1e-12));
  autograd::backward({together}, {varied({3, 5, 4}, 2)});
  const Tensor gradient = attention.in_proj_weight.grad();
  zero_grad(attention);
  autograd::backward({alone}, {varied({3, 5, 4}, 2)});
  EXPECT_TRUE(all_close(gradient, attention.in_proj_weight.grad(), 1e-12));
}

TEST(MultiheadAttention, DataParallelTakesItWithoutWeights) {
  const nn::MultiheadAttention attention{4, 2, in_f64(true, false)};
  const Tensor x = varied({3, 5, 4});
  const nn::MultiheadAttentionMasks masks{.need_weights = false, .is_causal = true};
  DataParallel model{attention, {"cpu:0", "cpu:1"}, {.dim = 1}};
  const auto [together, none] = model(x, x, x, masks);
  EXPECT_FALSE(none.defined());
  EXPECT_TRUE(all_close(together, std::get<0>(attention(x, x, x, masks)), 1e-12));
}

TEST(MultiheadAttention, SaysWhatDoesNotFit) {
  EXPECT_NE(message_of<ValueError>([] {
              nn::MultiheadAttention(6, 4);
            }).find("embed_dim 6 to be a multiple of num_heads 4"),
            std::string::npos);
  EXPECT_THROW(nn::MultiheadAttention(4, 0), ValueError);
  EXPECT_EQ(message_of<ValueError>([] { nn::MultiheadAttention(0, 4); }),
            "MultiheadAttention: expected embed_dim to be at least 1, got 0");
  EXPECT_THROW(nn::MultiheadAttention(4, 2, {.dropout = 1.5}), ValueError);
  const nn::MultiheadAttention attention{4, 2};
  const Tensor x = ones({3, 2, 4});
  const auto message = [&](const Tensor& q, const Tensor& k, const Tensor& v,
                           const nn::MultiheadAttentionMasks& masks = {}) {
    return message_of<ShapeError>([&] { attention(q, k, v, masks); });
  };
  EXPECT_NE(message(x, ones({3, 1, 4}), x).find("[3, 2, 4], [3, 1, 4] and [3, 2, 4]"),
            std::string::npos);
  EXPECT_NE(message(x, ones({5, 2, 4}), x).find("of one length"), std::string::npos);
  EXPECT_NE(message(ones({3, 2, 5}), x, x).find("[length, batch, 4]"), std::string::npos);
  const Tensor four = ones({1, 3, 2, 4});
  EXPECT_NE(message(four, four, four).find("[length, batch, 4]"), std::string::npos);
  EXPECT_NE(message(x, x, x, {.attn_mask = ones({2, 3})}).find("attn_mask of shape [3, 3] or"),
            std::string::npos);
  const Tensor three = ones({3, 3, 4});
  EXPECT_NE(message(three, three, three, {.attn_mask = ones({5, 3, 3})}).find("or [6, 3, 3], got"),
            std::string::npos);
  EXPECT_THROW(attention(x, x, x, {.attn_mask = ones({3, 3}, {.dtype = Dtype::i64})}), DtypeError);
  EXPECT_NE(message(x, x, x, {.key_padding_mask = ones({3, 2})}).find("of shape [2, 3]"),
            std::string::npos);
}

TEST(MultiheadAttention, SaysWhatHasBeenSetThatDoesNotFit) {
  const Tensor x = ones({3, 2, 4});
  const auto message = [&](const auto& set) {
    nn::MultiheadAttention attention{4, 2};
    set(attention);
    return message_of<ValueError>([&] { attention(x, x, x); });
  };
  EXPECT_NE(message([](auto& attention) { attention.num_heads = 0; }).find("num_heads"),
            std::string::npos);
  EXPECT_NE(message([](auto& attention) { attention.num_heads = 3; }).find("multiple of num_heads"),
            std::string::npos);
  EXPECT_NE(message([](auto& attention) { attention.dropout = 2; }).find("probability"),
            std::string::npos);
  nn::MultiheadAttention evaluated{4, 2};
  evaluated.training = false;
  evaluated.dropout = 2;  // which evaluation does not use
  (void)evaluated(x, x, x);
}

}  // namespace multihead_attention_test
}  // namespace lockstep
