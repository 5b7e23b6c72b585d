// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/nn/init.hpp>
#include <lockstep/nn/layer.hpp>
#include <lockstep/nn/multihead_attention.hpp>
#include <lockstep/ops/attention.hpp>
#include <lockstep/ops/linear.hpp>
#include <lockstep/ops/matmul.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/split.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

namespace lockstep::nn {

LOCKSTEP_INLINE MultiheadAttention::MultiheadAttention(std::int64_t embed, std::int64_t heads,
                                                       const MultiheadAttentionOptions& options)
    : out_proj((check_sizes(embed, heads), embed), embed,
               {.bias = options.bias, .dtype = options.dtype, .device = options.device}),
      embed_dim(embed),
      num_heads(heads),
      dropout(options.dropout),
      batch_first(options.batch_first) {
  detail::check_probability("MultiheadAttention", dropout);
  const TensorOptions like{.dtype = options.dtype, .device = options.device};
  in_proj_weight = Parameter(empty({3 * embed, embed}, like));
  init::xavier_uniform_(in_proj_weight);
  if (!options.bias) return;
  in_proj_bias = Parameter(zeros({3 * embed}, like));
  init::zeros_(out_proj.bias);
}

LOCKSTEP_INLINE std::tuple<Tensor, Tensor> MultiheadAttention::forward(
    const Tensor& query, const Tensor& key, const Tensor& value,
    const MultiheadAttentionMasks& masks) const {
  check_inputs(query, key, value);
  const std::array<Tensor, 3> projected = project(query, key, value);
  const Tensor q = heads_of(projected[0]);
  const Tensor k = heads_of(projected[1]);
  const Tensor v = heads_of(projected[2]);
  const double p = training ? dropout : 0;
  const double scale = 1 / std::sqrt(static_cast<double>(embed_dim / num_heads));
  if (!masks.need_weights) {
    const Tensor seen = detail::attention("MultiheadAttention", q, k, v,
                                          {.attn_mask = bias_of(masks, query, key),
                                           .dropout_p = p,
                                           .is_causal = masks.is_causal,
                                           .scale = scale});
    return {out_proj(joined(seen, query)), Tensor()};
  }
  const Tensor weights =
      detail::attention_weights(q, k, bias_of(masks, query, key), masks.is_causal,
                                detail::AttentionDropout::draw(p, q, k), scale);
  const Tensor output = out_proj(joined(matmul(weights, v), query));
  const Tensor shown = masks.average_attn_weights ? mean(weights, {1}) : weights;
  return {output, query.dim() == 2 ? squeeze(shown, 0) : shown};
}

LOCKSTEP_INLINE void MultiheadAttention::check_sizes(std::int64_t embed, std::int64_t heads) {
  detail::check_layer_size("MultiheadAttention", "embed_dim", embed);
  detail::check_layer_size("MultiheadAttention", "num_heads", heads);
  check<ValueError>(embed % heads == 0, "MultiheadAttention: expected embed_dim ", embed,
                    " to be a multiple of num_heads ", heads);
}

LOCKSTEP_INLINE void MultiheadAttention::check_inputs(const Tensor& query, const Tensor& key,
                                                      const Tensor& value) const {
  check_sizes(embed_dim, num_heads);  // public members, which may have been set
  if (training) detail::check_probability("MultiheadAttention", dropout);
  const auto fits = [&](const Tensor& x) {
    return x.dim() == query.dim() && x.size(-1) == embed_dim && batch_of(x) == batch_of(query);
  };
  check<ShapeError>((query.dim() == 2 || query.dim() == 3) && fits(query) && fits(key) &&
                        fits(value) && length_of(key) == length_of(value),
                    "MultiheadAttention: expected query, key and value of shape ",
                    batch_first ? "[batch, length, " : "[length, batch, ", embed_dim,
                    "] or [length, ", embed_dim, "], key and value of one length, got ",
                    query.sizes(), ", ", key.sizes(), " and ", value.sizes());
}

LOCKSTEP_INLINE std::array<Tensor, 3> MultiheadAttention::project(const Tensor& query,
                                                                  const Tensor& key,
                                                                  const Tensor& value) const {
  if (query.is_same(key) && key.is_same(value)) {
    const std::vector<Tensor> thirds = chunk(linear(query, in_proj_weight, in_proj_bias), 3, -1);
    return {thirds[0], thirds[1], thirds[2]};
  }
  const auto third = [this](const Tensor& x, std::int64_t i) {
    const auto rows = [&](const Tensor& of) { return narrow(of, 0, i * embed_dim, embed_dim); };
    return linear(x, rows(in_proj_weight), in_proj_bias.defined() ? rows(in_proj_bias) : Tensor());
  };
  return {third(query, 0), third(key, 1), third(value, 2)};
}

LOCKSTEP_INLINE Tensor MultiheadAttention::heads_of(const Tensor& x) const {
  const std::int64_t size = embed_dim / num_heads;
  const Tensor split = reshape(x, batch_first ? Shape{batch_of(x), length_of(x), num_heads, size}
                                              : Shape{length_of(x), batch_of(x), num_heads, size});
  return permute(split, batch_first ? Shape{0, 2, 1, 3} : Shape{1, 2, 0, 3});
}

LOCKSTEP_INLINE Tensor MultiheadAttention::joined(const Tensor& heads, const Tensor& like) const {
  return reshape(permute(heads, batch_first ? Shape{0, 2, 1, 3} : Shape{2, 0, 1, 3}), like.sizes());
}

LOCKSTEP_INLINE Tensor MultiheadAttention::bias_of(const MultiheadAttentionMasks& masks,
                                                   const Tensor& query, const Tensor& key) const {
  constexpr const char* name = "MultiheadAttention";
  const std::int64_t batch = batch_of(query);
  const std::int64_t queries = length_of(query);
  const std::int64_t keys = length_of(key);
  Tensor bias;
  const auto add = [&](const Tensor& more) { bias = bias.defined() ? bias + more : more; };
  if (masks.attn_mask.defined()) {
    const Shape& sizes = masks.attn_mask.sizes();
    const bool same = sizes == Shape{queries, keys};
    check<ShapeError>(same || sizes == Shape{batch * num_heads, queries, keys}, name,
                      ": expected an attn_mask of shape ", Shape{queries, keys}, " or ",
                      Shape{batch * num_heads, queries, keys}, ", got ", sizes);
    const Tensor mask = detail::mask_bias(name, masks.attn_mask, true, query);
    add(same ? mask : reshape(mask, {batch, num_heads, queries, keys}));
  }
  if (masks.key_padding_mask.defined()) {
    const Shape& sizes = masks.key_padding_mask.sizes();
    const Shape expected = query.dim() == 2 ? Shape{keys} : Shape{batch, keys};
    check<ShapeError>(sizes == expected, name, ": expected a key_padding_mask of shape ", expected,
                      ", got ", sizes);
    add(reshape(detail::mask_bias(name, masks.key_padding_mask, true, query), {batch, 1, 1, keys}));
  }
  return bias;
}

}  // namespace lockstep::nn
