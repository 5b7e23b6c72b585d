// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/attention.hpp>
#include <lockstep/ops/dropout.hpp>
#include <lockstep/ops/elementwise.hpp>
#include <lockstep/ops/kernels/attention_kernels.hpp>
#include <lockstep/ops/matmul.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/softmax.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace lockstep::detail {

// Masks are made in the dtype that softmax works in.
inline Dtype mask_dtype(const Tensor& query) {
  return query.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32;
}

LOCKSTEP_INLINE Tensor mask_bias(const char* name, const Tensor& mask, bool hidden,
                                 const Tensor& query) {
  const Dtype dtype = mask_dtype(query);
  check<DeviceError>(mask.device() == query.device(), name, ": expected the mask on ",
                     query.device(), ", where the query is, got one on ", mask.device());
  if (mask.dtype() == Dtype::boolean) {
    return dispatch_floating(dtype, name,
                             [&]<class T>(T) { return map<bool, T>(mask, MaskBias<T>{hidden}); });
  }
  check<DtypeError>(is_floating_point(mask.dtype()), name,
                    ": expected a boolean or a floating-point mask, got ", mask.dtype());
  return mask.to(dtype);
}

LOCKSTEP_INLINE Tensor causal_bias(const Tensor& query, std::int64_t queries, std::int64_t keys) {
  const Stream stream = current_stream(query.device());
  return dispatch_floating(mask_dtype(query), "attention", [&]<class T>(T) {
    Tensor bias = empty_on(stream, {queries, keys}, dtype_of<T>);
    launch(stream, static_cast<std::size_t>(bias.numel()),
           CausalBias<T>{output<T>(bias, stream), static_cast<std::size_t>(keys)});
    return bias;
  });
}

LOCKSTEP_INLINE Tensor attention_weights(const Tensor& query, const Tensor& key, const Tensor& bias,
                                         double dropout_p, double scale) {
  const Tensor product = matmul(query * scale, transpose(key, -2, -1));
  const Tensor scores = product.to(mask_dtype(query));
  const Tensor weights = softmax(bias.defined() ? scores + bias : scores, -1).to(product.dtype());
  return dropout_p > 0 ? dropout(weights, dropout_p) : weights;
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key,
                                                    const Tensor& value,
                                                    const AttentionOptions& options) {
  constexpr const char* name = "scaled_dot_product_attention";
  check<ShapeError>(query.dim() >= 2 && key.dim() >= 2 && value.dim() >= 2, name,
                    ": expected tensors of at least 2 dimensions, got shapes ", query.sizes(), ", ",
                    key.sizes(), " and ", value.sizes());
  detail::check_probability(name, options.dropout_p);
  check<ValueError>(!(options.is_causal && options.attn_mask.defined()), name,
                    ": expected attn_mask or is_causal, got both");
  Tensor bias;
  if (options.is_causal) {
    bias = detail::causal_bias(query, query.size(-2), key.size(-2));
  } else if (options.attn_mask.defined()) {
    bias = detail::mask_bias(name, options.attn_mask, false, query);
  }
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
  return matmul(detail::attention_weights(query, key, bias, options.dropout_p, scale), value);
}

}  // namespace lockstep
