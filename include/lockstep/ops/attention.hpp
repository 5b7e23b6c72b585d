// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
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
// any].
//
// A mask of numbers is added to the scores. A query that sees no key gives NaN, where torch
// gives 0 since its version 2.5. The softmax of half precision is computed in f32.
//
// **Torch counterpart.** torch.nn.functional.scaled_dot_product_attention.
// **Devices and streams.** Two products, with all scores in memory between them.
// **Threads and exceptions.** A ShapeError, DtypeError or DeviceError of the product or the mask
// that does not fit; a ValueError for a probability outside [0, 1] or for both kinds of mask.
// **Source.** Vaswani and others, "Attention Is All You Need", section 3.2.1.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options = {});

}  // namespace lockstep

namespace lockstep::detail {

// What a mask adds to the scores: a boolean one hides the elements that are `hidden`, one of
// numbers is added as it is.
Tensor mask_bias(const char* name, const Tensor& mask, bool hidden, const Tensor& query);

Tensor causal_bias(const Tensor& query, std::int64_t queries, std::int64_t keys);

// How much of each value each query takes: softmax(scale · query · keyᵀ + bias), thinned out by
// dropout. An undefined bias is none.
Tensor attention_weights(const Tensor& query, const Tensor& key, const Tensor& bias,
                         double dropout_p, double scale);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/attention.ipp>
#endif
