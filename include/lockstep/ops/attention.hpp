// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/device_random.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <optional>

namespace lockstep {

struct AttentionOptions {
  Tensor attn_mask = {};  // absent, or broadcast to [*, queries, keys]: true lets a query see a key
  double dropout_p = 0;
  bool is_causal = false;            // a query sees no key after it
  std::optional<double> scale = {};  // 1/√(size of a query) if absent
};

// softmax(scale · query · keyᵀ + mask) · value: for each query a mean of the values, weighted by
// how well their keys match. Queries are [*, queries, size], keys [*, keys, size], values [*, keys,
// any]; the dimensions before the last two are broadcast against each other.
//
// A mask of numbers is added to the scores. A query that sees no key gives 0. Hosts compute half
// precision in f32 and round the result once. The result has the order of the query's dimensions in
// memory.
//
// **Torch counterpart.** torch.nn.functional.scaled_dot_product_attention.
// **Devices and streams.** The operands' current stream. The host computes in one thread, in
// blocks, so that memory grows with the number of queries and keys and not with their product. A
// GPU, or a mask that requires grad, needs memory for all scores; a GPU computes all but the
// softmax in the operands' dtype.
// **Backward.** Gradients of query, key, value and a mask of numbers, with the same bits every
// time; derivatives of any order, which keep all scores in memory from the second on.
// **Threads and exceptions.** A ShapeError, DtypeError or DeviceError for operands or a mask that
// do not match; a ValueError for a probability outside [0, 1] or for both kinds of mask.
// **Source.** Vaswani and others, "Attention Is All You Need", section 3.2.1; in blocks: Dao and
// others, "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness" (2022).
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options = {});

}  // namespace lockstep

namespace lockstep::detail {

// What a mask adds to the scores: a boolean mask hides the elements that equal `hidden`, a mask of
// numbers is added as it is.
Tensor mask_bias(const char* name, const Tensor& mask, bool hidden, const Tensor& query);

// Dropout of the weights, with the random numbers it has drawn: one for each query and key.
struct AttentionDropout {
  double p = 0;
  RandomRange random = {};

  static AttentionDropout draw(double p, const Tensor& query, const Tensor& key);
};

// The weight of each value for each query: softmax(scale · query · keyᵀ + bias) after dropout, and
// 0 for a query that sees no key. The bias may be undefined; `causal` also hides the keys after
// each query.
Tensor attention_weights(const Tensor& query, const Tensor& key, Tensor bias, bool causal,
                         const AttentionDropout& dropout, double scale);

// scaled_dot_product_attention with a scale, and with both masks if both are given.
Tensor attention(const char* name, const Tensor& query, const Tensor& key, const Tensor& value,
                 const AttentionOptions& options);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/attention.ipp>
#endif
