// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/lockstep.hpp>

#include "../support/text.hpp"

#include <cstdint>
#include <tuple>
#include <vector>

// Models that guess the next character of a text. Characters are [length, batch] as recurrent
// layers have it: the batch is dimension 1.
//
// `scores` gives [length, batch, kCharacters]; `forward` the mean loss against what really follows,
// so that replicas return a number each instead of all their scores.
namespace example {

namespace ls = lockstep;

struct TextModelOptions {
  std::int64_t width = 128;
  std::int64_t layers = 2;
  std::int64_t length = 64;  // the most characters that a model looks back
  double dropout = 0;
  ls::Dtype dtype = ls::Dtype::f32;
};

inline ls::Tensor text_loss(const ls::Tensor& scores, const ls::Tensor& next) {
  return ls::cross_entropy(ls::flatten(scores, 0, 1), ls::flatten(next));
}

struct LstmModel {
  ls::nn::Embedding characters;
  ls::nn::LSTM lstm;
  ls::nn::Linear out;

  ls::Tensor scores(const ls::Tensor& text) const {
    return out(std::get<0>(lstm(characters(text))));
  }
  ls::Tensor forward(const ls::Tensor& text, const ls::Tensor& next) const {
    return text_loss(scores(text), next);
  }
};

inline LstmModel make_lstm_model(const TextModelOptions& options) {
  const ls::Dtype dtype = options.dtype;
  return {.characters{kCharacters, options.width, {.dtype = dtype}},
          .lstm{options.width,
                options.width,
                {.num_layers = options.layers, .dropout = options.dropout, .dtype = dtype}},
          .out{options.width, kCharacters, {.dtype = dtype}}};
}

// A layer of a transformer that normalises first: attention to what came before, then two linear
// layers for each character by itself; both are added to what they are given.
struct TransformerBlock {
  ls::nn::LayerNorm norm1;
  ls::nn::MultiheadAttention attention;
  ls::nn::LayerNorm norm2;
  ls::nn::Linear fc1, fc2;
  ls::nn::Dropout dropout;

  ls::Tensor forward(const ls::Tensor& input) const {
    const ls::Tensor x = norm1(input);
    const auto [seen, weights] = attention(x, x, x, {.need_weights = false, .is_causal = true});
    const ls::Tensor y = input + dropout(seen);
    return y + dropout(fc2(ls::gelu(fc1(norm2(y)))));
  }
};

struct TransformerModel {
  ls::nn::Embedding characters;
  ls::nn::Embedding positions;
  std::vector<TransformerBlock> blocks;
  ls::nn::LayerNorm norm;
  ls::nn::Linear out;

  ls::Tensor scores(const ls::Tensor& text) const {
    const ls::Tensor places =
        ls::arange(text.size(0), {.dtype = ls::Dtype::i64, .device = text.device()});
    ls::Tensor x = characters(text) + ls::unsqueeze(positions(places), 1);
    for (const TransformerBlock& block : blocks) x = block.forward(x);
    return out(norm(x));
  }
  ls::Tensor forward(const ls::Tensor& text, const ls::Tensor& next) const {
    return text_loss(scores(text), next);
  }
};

inline TransformerModel make_transformer_model(const TextModelOptions& options) {
  constexpr std::int64_t kHeads = 4;
  const std::int64_t width = options.width;
  const ls::Dtype dtype = options.dtype;
  TransformerModel model{.characters{kCharacters, width, {.dtype = dtype}},
                         .positions{options.length, width, {.dtype = dtype}},
                         .blocks = {},
                         .norm = ls::nn::LayerNorm{width, {.dtype = dtype}},
                         .out{width, kCharacters, {.dtype = dtype}}};
  for (std::int64_t i = 0; i < options.layers; ++i) {
    model.blocks.push_back({.norm1 = ls::nn::LayerNorm{width, {.dtype = dtype}},
                            .attention{width, kHeads, {.dropout = options.dropout, .dtype = dtype}},
                            .norm2 = ls::nn::LayerNorm{width, {.dtype = dtype}},
                            .fc1{width, 4 * width, {.dtype = dtype}},
                            .fc2{4 * width, width, {.dtype = dtype}},
                            .dropout = ls::nn::Dropout{options.dropout}});
  }
  return model;
}

}  // namespace example
