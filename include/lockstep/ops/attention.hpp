// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/device_random.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <optional>

namespace lockstep {

struct AttentionOptions {
  Tensor attn_mask = {};  // absent, or stretched to [*, queries, keys]: true lets a query see a key
  double dropout_p = 0;
  bool is_causal = false;            // a query sees no key after it
  std::optional<double> scale = {};  // 1/√(size of a query) if absent
};

// softmax(scale · query · keyᵀ + mask) · value: for each query a mean of the values, weighted by
// how well their keys fit. Queries are [*, queries, size], keys [*, keys, size], values [*, keys,
// any]; the dimensions before the last two are broadcast against each other.
//
// A mask of numbers is added to the scores. A query that sees no key gives 0. Hosts compute half
// precision in f32, and round the result once. The result lies in memory in the order of the
// query's dimensions.
//
// **Torch counterpart.** torch.nn.functional.scaled_dot_product_attention.
// **Devices and streams.** The operands' current stream, in one thread on the host. Its memory
// grows with the number of queries and keys, not with their product: scores are computed in blocks,
// those that nobody sees with is_causal left out. On a GPU, or for a mask that requires grad, two
// products, with all scores in memory between them; on a GPU in the operands' dtype but for the
// softmax.
// **Backward.** Into query, key, value and a mask of numbers; bit for bit the same every time.
// Derivatives of any order, those of a gradient with all scores in memory.
// **Threads and exceptions.** A ShapeError, DtypeError or DeviceError for operands or a mask that
// do not fit; a ValueError for a probability outside [0, 1] or for both kinds of mask.
// **Source.** Vaswani and others, "Attention Is All You Need", section 3.2.1; in blocks: Dao and
// others, "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness" (2022).
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options = {});

}  // namespace lockstep

namespace lockstep::detail {

// What a mask adds to the scores: a boolean one hides the elements that equal `hidden`, one of
// numbers is added as it is.
Tensor mask_bias(const char* name, const Tensor& mask, bool hidden, const Tensor& query);

// Dropout of the weights, with the numbers that it has drawn: one for each query and key.
struct AttentionDropout {
  double p = 0;
  RandomRange random = {};

  static AttentionDropout draw(double p, const Tensor& query, const Tensor& key);
};

// How much of each value each query takes: softmax(scale · query · keyᵀ + bias), thinned out by
// dropout, and 0 of each where it sees no key. An undefined bias is none; `causal` hides the keys
// after each query besides.
Tensor attention_weights(const Tensor& query, const Tensor& key, Tensor bias, bool causal,
                         const AttentionDropout& dropout, double scale);

// scaled_dot_product_attention with a scale, and with both masks if both are given.
Tensor attention(const char* name, const Tensor& query, const Tensor& key, const Tensor& value,
                 const AttentionOptions& options);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/attention.ipp>
#endif
