// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/attention.hpp>
#include <lockstep/ops/autocast.hpp>
#include <lockstep/ops/compare.hpp>
#include <lockstep/ops/composed_grads.hpp>
#include <lockstep/ops/dropout.hpp>
#include <lockstep/ops/elementwise.hpp>
#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/kernels/attention_blocks.hpp>
#include <lockstep/ops/kernels/attention_kernels.hpp>
#include <lockstep/ops/layout.hpp>
#include <lockstep/ops/matmul.hpp>
#include <lockstep/ops/max.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/softmax.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/ops/where.hpp>
#include <lockstep/tensor/autograd_state.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace lockstep::detail {

// Masks have the dtype in which softmax computes.
inline Dtype mask_dtype(const Tensor& query) {
  return query.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32;
}

inline void check_mask(const char* name, const Tensor& mask, const Tensor& query) {
  check<DeviceError>(mask.device() == query.device(), name, ": expected the mask on ",
                     query.device(), ", where the query is, got one on ", mask.device());
  check<DtypeError>(mask.dtype() == Dtype::boolean || is_floating_point(mask.dtype()), name,
                    ": expected a boolean or a floating-point mask, got ", mask.dtype());
}

LOCKSTEP_INLINE Tensor mask_bias(const char* name, const Tensor& mask, bool hidden,
                                 const Tensor& query) {
  const Dtype dtype = mask_dtype(query);
  check_mask(name, mask, query);
  if (mask.dtype() != Dtype::boolean) return mask.to(dtype);
  return dispatch_floating(dtype, name,
                           [&]<class T>(T) { return map<bool, T>(mask, MaskBias<T>{hidden}); });
}

LOCKSTEP_INLINE AttentionDropout AttentionDropout::draw(double p, const Tensor& query,
                                                        const Tensor& key) {
  if (p == 0) return {};
  Shape weights = query.sizes();
  weights[weights.size() - 1] = key.size(-2);
  return {p, dropout_numbers(query.device(), numel(weights))};
}

LOCKSTEP_INLINE Tensor attention_weights(const Tensor& query, const Tensor& key, Tensor bias,
                                         bool causal, const AttentionDropout& dropout,
                                         double scale) {
  if (query.device().is_cpu() && is_half_precision(query.dtype())) {
    const AutocastGuard off(false);  // autocast would convert back to half precision
    return attention_weights(query.to(Dtype::f32), key.to(Dtype::f32), bias, causal, dropout, scale)
        .to(query.dtype());
  }
  const bool masked = bias.defined();
  if (causal) {
    const std::int64_t keys = key.size(-2);
    const Stream stream = current_stream(query.device());
    const Tensor after = empty_on(stream, {query.size(-2), keys}, mask_dtype(query));
    dispatch_floating(after.dtype(), "attention", [&]<class T>(T) {
      launch(stream, static_cast<std::size_t>(after.numel()),
             CausalBias<T>{output<T>(after, stream), static_cast<std::size_t>(keys)});
    });
    bias = bias.defined() ? bias + after : after;
  }
  Tensor blind;  // the queries that see no key, for which softmax would give NaN
  if (masked && bias.numel() > 0) {
    constexpr double kHidden = -std::numeric_limits<double>::infinity();
    blind = eq(max(bias.detach(), -1, true).values, kHidden);
    bias = where(blind, 0, bias);
  }
  const Tensor product = matmul(query * scale, transpose(key, -2, -1));
  const Tensor scores = product.to(mask_dtype(query));
  Tensor weights = softmax(bias.defined() ? scores + bias : scores, -1).to(product.dtype());
  if (blind.defined()) weights = where(blind, 0, weights);
  return dropout.p > 0 ? dropout_by(weights, dropout.p, dropout.random) : weights;
}

// An uninitialised tensor whose dimensions before the last are in memory in the order of those of
// `like`.
inline Tensor empty_in_order_of(const Tensor& like, const Shape& sizes, const Stream& stream) {
  const std::size_t last = sizes.size() - 1;
  std::array<std::size_t, Shape::kMaxDims> order{};
  for (std::size_t d = 0; d <= last; ++d) order[d] = d;
  const Shape& steps = like.strides();
  std::stable_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(last),
                   [&](std::size_t a, std::size_t b) { return steps[a] > steps[b]; });
  Shape strides = sizes;
  std::int64_t step = 1;
  for (std::size_t i = last + 1; i-- > 0; step *= sizes[order[i]]) strides[order[i]] = step;
  return make_view(empty_on(stream, sizes, like.dtype()), sizes, strides, 0);
}

// The tensor itself if its rows are contiguous, else a packed copy.
inline Tensor with_packed_rows(const Tensor& x) {
  const std::size_t last = x.sizes().size() - 1;
  const std::int64_t columns = x.sizes()[last];
  const bool good =
      (columns <= 1 || x.strides()[last] == 1) &&
      (x.sizes()[last - 1] <= 1 || x.strides()[last - 1] >= std::max<std::int64_t>(columns, 1));
  return good ? x : packed(x);
}

// The rows are taken to be at least `least` elements apart: a single row may have any stride.
template <class T>
HeadMatrices<T> head_matrices(View<T> all, const Shape& strides, std::int64_t least) {
  const std::size_t last = strides.size() - 1;
  return {all, Shape(std::span(strides.begin(), last - 1)), std::max(strides[last - 1], least),
          strides[last]};
}

template <class T>
HeadMatrices<const T> heads_read(const Tensor& x) {
  return head_matrices(strided_input<T>(x), x.strides(), x.sizes().back());
}

// `x` must have no gaps.
template <class T>
HeadMatrices<T> heads_written(const Tensor& x, const Stream& stream) {
  if (!x.defined()) return {};
  return head_matrices(output<T>(x, stream), x.strides(), x.sizes().back());
}

template <class T>
HeadMatrices<const T> mask_read(const Tensor& mask, const Shape& shape) {
  return head_matrices(strided_input<T>(mask), broadcast_strides(mask, shape), 0);
}

// Attention in blocks. All operands are on one host device, in f32 or f64, with one batch shape,
// and not empty. The mask may be undefined, and must not require grad.
struct AttentionOp {
  static constexpr const char* name = "scaled_dot_product_attention";
  bool causal;
  AttentionDropout dropout;
  double scale;
  std::array<Saved, 4> inputs = {};  // query, key, value and mask
  Saved out = {};
  Tensor stats = {};

  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& masks) {
    inputs = {q, k, v, masks};
    const Tensor from_q = with_packed_rows(q);
    const Tensor from_k = with_packed_rows(k);
    const Tensor from_v = with_packed_rows(v);
    const AttentionGeometry g = geometry(q, k, v);
    const Stream stream = current_stream(q.device());
    Shape sizes = q.sizes();
    sizes[sizes.size() - 1] = g.value_size;
    const Tensor result = empty_in_order_of(q, sizes, stream);
    if (autograd_state().saving) {
      stats = empty_on(stream, {g.heads(), g.queries, 2}, q.dtype());
    }
    const Tensor scores = workspace(stream, g.block_size(), q.dtype());
    const Tensor keys = workspace(stream, g.transposed(g.size), q.dtype());
    dispatch_floating(q.dtype(), name, [&]<class T>(T) {
      launch_on_host(
          stream,
          AttentionForward<T>{heads_read<T>(from_q), heads_read<T>(from_k), heads_read<T>(from_v),
                              mask_of<T>(masks, g), heads_written<T>(result, stream),
                              optional_output<T>(stats, stream), output<T>(scores, stream),
                              output<T>(keys, stream), g});
    });
    out = Saved::output(result);
    return result;
  }

  std::array<Tensor, 4> backward(const Backward& saved, const Tensor& grad) const {
    if (is_grad_enabled()) {
      return composed_grads(
          std::array<Tensor, 4>{saved(inputs[0]), saved(inputs[1]), saved(inputs[2]),
                                saved(inputs[3])},
          {grad}, [&](const std::array<Tensor, 4>& x) { return std::vector{composed(x)}; });
    }
    const Tensor q = saved(inputs[0]);
    const Tensor k = saved(inputs[1]);
    const Tensor v = saved(inputs[2]);
    const Tensor from_q = with_packed_rows(q);
    const Tensor from_k = with_packed_rows(k);
    const Tensor from_v = with_packed_rows(v);
    const Tensor from_grad = with_packed_rows(grad);
    const AttentionGeometry g = geometry(q, k, v);
    const Stream stream = current_stream(q.device());
    std::array<Tensor, 4> grads;
    if (saved.needs(0)) grads[0] = empty_in_order_of(q, q.sizes(), stream);
    if (saved.needs(1)) grads[1] = empty_in_order_of(k, k.sizes(), stream);
    if (saved.needs(2)) grads[2] = empty_in_order_of(v, v.sizes(), stream);
    const Tensor scores = workspace(stream, g.block_size(), q.dtype());
    const Tensor slopes = workspace(stream, g.block_size(), q.dtype());
    const Tensor scaled = workspace(stream, g.block_rows() * g.value_size, q.dtype());
    const Tensor keys = workspace(stream, g.transposed(g.size), q.dtype());
    const Tensor values = workspace(stream, g.transposed(g.value_size), q.dtype());
    dispatch_floating(q.dtype(), name, [&]<class T>(T) {
      launch_on_host(
          stream,
          AttentionBackward<T>{
              heads_read<T>(from_q), heads_read<T>(from_k), heads_read<T>(from_v),
              mask_of<T>(saved(inputs[3]), g), heads_read<T>(saved(out)), heads_read<T>(from_grad),
              input<T>(stats), heads_written<T>(grads[0], stream),
              heads_written<T>(grads[1], stream), heads_written<T>(grads[2], stream),
              output<T>(scores, stream), output<T>(slopes, stream), output<T>(scaled, stream),
              output<T>(keys, stream), output<T>(values, stream), g});
    });
    return grads;
  }

  // The same by elementary operations, for any device and for a mask that requires grad.
  Tensor composed(const std::array<Tensor, 4>& x) const {
    const auto& [q, k, v, masks] = x;
    Tensor bias;
    if (masks.defined()) bias = mask_bias(name, masks, false, q);
    return matmul(attention_weights(q, k, bias, causal, dropout, scale), v);
  }

 private:
  AttentionGeometry geometry(const Tensor& q, const Tensor& k, const Tensor& v) const {
    return {.batch = batch_of(q),
            .queries = q.size(-2),
            .keys = k.size(-2),
            .size = q.size(-1),
            .value_size = v.size(-1),
            .scale = scale,
            .causal = causal,
            .dropout_p = dropout.p,
            .random = dropout.random};
  }

  template <class T>
  static AttentionMask<T> mask_of(const Tensor& mask, const AttentionGeometry& g) {
    if (!mask.defined()) return {};
    const Shape shape = shape_of_matrices(g.batch, g.queries, g.keys);
    if (mask.dtype() == Dtype::boolean) return {mask_read<bool>(mask, shape), {}};
    return {{}, mask_read<T>(mask, shape)};
  }
};

// The operands broadcast to a common batch, which includes the mask's.
inline std::array<Tensor, 3> attention_operands(const char* name, const Tensor& query,
                                                const Tensor& key, const Tensor& value,
                                                const Tensor& mask) {
  check_same_kind(name, "the query", query, "the key", key);
  check_same_kind(name, "the query", query, "the value", value);
  const bool matrices = query.dim() >= 2 && key.dim() >= 2 && value.dim() >= 2;
  check<ShapeError>(matrices, name, ": expected tensors of at least 2 dimensions, got shapes ",
                    query.sizes(), ", ", key.sizes(), " and ", value.sizes());
  check<ShapeError>(query.size(-1) == key.size(-1) && key.size(-2) == value.size(-2), name,
                    ": expected queries [*, queries, size], keys [*, keys, size] and values ",
                    "[*, keys, any], got shapes ", query.sizes(), ", ", key.sizes(), " and ",
                    value.sizes());
  std::array<Tensor, 3> all{query, key, value};
  Shape batch;
  for (const Tensor& x : all) batch = broadcast_shapes(name, batch, batch_of(x));
  if (mask.defined()) {
    check_mask(name, mask, query);
    const Shape scores{query.size(-2), key.size(-2)};
    const Shape& sizes = mask.sizes();
    const std::size_t ends = std::min<std::size_t>(sizes.size(), 2);
    const Shape end(std::span(sizes.end() - ends, ends));
    check<ShapeError>(broadcast_shapes(name, end, scores) == scores, name,
                      ": expected a mask that stretches to [*, ", scores[0], ", ", scores[1],
                      "] (queries, keys), got one of shape ", sizes);
    if (sizes.size() > 2) batch = broadcast_shapes(name, batch, batch_of(mask));
  }
  for (Tensor& x : all) x = expand_to(x, shape_of_matrices(batch, x.size(-2), x.size(-1)));
  return all;
}

LOCKSTEP_INLINE Tensor attention(const char* name, const Tensor& query, const Tensor& key,
                                 const Tensor& value, const AttentionOptions& options) {
  if (is_autocast_enabled()) {
    return autocast_to_half([&](const Tensor& q, const Tensor& k,
                                const Tensor& v) { return attention(name, q, k, v, options); },
                            query, key, value);
  }
  const auto [q, k, v] = attention_operands(name, query, key, value, options.attn_mask);
  const AttentionOp op{options.is_causal, AttentionDropout::draw(options.dropout_p, q, k),
                       options.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1))))};
  Tensor mask = options.attn_mask;
  const bool in_blocks = q.device().is_cpu() && q.numel() > 0 && k.numel() > 0 && v.numel() > 0;
  if (mask.defined() && mask.dtype() != Dtype::boolean) mask = mask.to(mask_dtype(q));
  const auto attend = [&](const Tensor& queries, const Tensor& keys, const Tensor& values) {
    if (in_blocks && !is_recorded(mask)) return apply(op, queries, keys, values, mask);
    return op.composed({queries, keys, values, mask});
  };
  if (!q.device().is_cpu() || !is_half_precision(q.dtype())) return attend(q, k, v);
  return attend(q.to(Dtype::f32), k.to(Dtype::f32), v.to(Dtype::f32)).to(q.dtype());
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key,
                                                    const Tensor& value,
                                                    const AttentionOptions& options) {
  constexpr const char* name = "scaled_dot_product_attention";
  detail::check_probability(name, options.dropout_p);
  check<ValueError>(!(options.is_causal && options.attn_mask.defined()), name,
                    ": expected attn_mask or is_causal, got both");
  return detail::attention(name, query, key, value, options);
}

}  // namespace lockstep
