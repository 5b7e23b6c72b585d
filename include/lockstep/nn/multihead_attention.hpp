// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/dropout.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <array>
#include <cstdint>
#include <tuple>

namespace lockstep::nn {

struct MultiheadAttentionOptions {
  double dropout = 0;  // of the weights, in training
  bool bias = true;
  bool batch_first = false;
  Dtype dtype = Dtype::f32;
  Device device = {};
};

// The options of a call of MultiheadAttention.
struct MultiheadAttentionMasks {
  Tensor key_padding_mask = {};  // [batch, keys]: true hides a key from all queries
  Tensor attn_mask = {};         // [queries, keys] or [batch · heads, queries, keys]: true hides
  bool need_weights = true;
  bool average_attn_weights = true;
  bool is_causal = false;  // a query sees no key after it
};

// Attention with several heads, each with its own projection of queries, keys and values. These are
// [length, batch, embed_dim] ([batch, length, embed_dim] with batch_first), or without the batch.
// Returns the output, of the query's shape, and the weights: [batch, queries, keys], the mean over
// the heads, or [batch, heads, queries, keys]; undefined if not asked for.
//
// Masks of numbers are added to the scores. A query that sees no key has weights of 0; in torch
// they are NaN, unless need_weights is false. Without batch_first the batch is dimension 1 of
// inputs and output, but dimension 0 of key_padding_mask and weights, so in a DataParallel with
// `dim = 1` use neither (`need_weights = false`).
//
// **Torch counterpart.** torch.nn.MultiheadAttention, with its initialisation; without kdim, vdim,
// add_bias_kv and add_zero_attn. `is_causal` needs no attn_mask.
// **Devices and streams.** With `need_weights` the scores of all heads are stored; without, see
// scaled_dot_product_attention.
// **Threads and exceptions.** A ValueError for sizes that do not match, a DtypeError for a dtype
// other than f32 and f64; forward throws a ShapeError that names the shapes.
// **Example.** nn::MultiheadAttention attention{64, 4, {.batch_first = true}};
//              auto [y, weights] = attention(x, x, x, {.is_causal = true});
struct MultiheadAttention {
  Parameter in_proj_weight;  // [3 · embed_dim, embed_dim]: queries, keys, values
  Parameter in_proj_bias;    // [3 · embed_dim], or absent
  Linear out_proj;
  std::int64_t embed_dim;
  std::int64_t num_heads;
  double dropout;
  bool batch_first;
  bool training = true;

  MultiheadAttention(std::int64_t embed, std::int64_t heads,
                     const MultiheadAttentionOptions& options = {});

  std::tuple<Tensor, Tensor> forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                     const MultiheadAttentionMasks& masks = {}) const;
  std::tuple<Tensor, Tensor> operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                        const MultiheadAttentionMasks& masks = {}) const {
    return forward(query, key, value, masks);
  }

  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("in_proj_weight", self.in_proj_weight);
    visit("in_proj_bias", self.in_proj_bias);
    visit("out_proj", self.out_proj);
    visit("training", self.training);
  }

 private:
  static void check_sizes(std::int64_t embed, std::int64_t heads);

  // The batch and the length of an input.
  std::int64_t batch_of(const Tensor& x) const {
    return x.dim() == 2 ? 1 : x.sizes()[batch_first ? 0 : 1];
  }
  std::int64_t length_of(const Tensor& x) const {
    return x.sizes()[batch_first && x.dim() != 2 ? 1 : 0];
  }

  void check_inputs(const Tensor& query, const Tensor& key, const Tensor& value) const;

  std::array<Tensor, 3> project(const Tensor& query, const Tensor& key, const Tensor& value) const;

  // Converts from the layout of the inputs to [batch, heads, length, size].
  Tensor heads_of(const Tensor& x) const;
  // Converts back to the layout of `like`.
  Tensor joined(const Tensor& heads, const Tensor& like) const;

  // The sum of all masks but is_causal: undefined, or of a shape that expands to [batch, heads,
  // queries, keys].
  Tensor bias_of(const MultiheadAttentionMasks& masks, const Tensor& query,
                 const Tensor& key) const;
};

}  // namespace lockstep::nn

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/nn/impl/multihead_attention.ipp>
#endif
