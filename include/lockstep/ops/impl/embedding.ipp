// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/compare.hpp>
#include <lockstep/ops/embedding.hpp>
#include <lockstep/ops/embedding_sparse.hpp>
#include <lockstep/ops/index.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/where.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/row_kernels.hpp>
#include <lockstep/tensor/shape.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace lockstep::detail {

// Adds up the gradient in the rows that the indices name. Linear in the gradient.
struct EmbeddingGradOp {
  static constexpr const char* name = "embedding_grad";
  std::int64_t rows;
  std::int64_t padding;
  const Tensor* slot = nullptr;  // for the result
  Saved indices = {};

  Tensor forward(const Tensor& grad, const Tensor& at) {
    indices = at;
    const std::int64_t width = grad.sizes().back();
    // On the host a gradient may repeat each row, as that of a sum of words' vectors does.
    const std::size_t dims = grad.sizes().size();
    const bool is_repeated =
        grad.device().is_cpu() && dims > 1 && grad.strides()[dims - 2] == 0 && grad.numel() > 0;
    const std::int64_t repeats = is_repeated ? grad.sizes()[dims - 2] : 1;
    const Tensor from = packed_wide(repeats == 1 ? grad : narrow(grad, -2, 0, 1));
    const Stream stream = current_stream(grad.device());
    return compute_elements(grad.dtype(), name, [&]<class T>(T) {
      Tensor out =
          empty_at(std::exchange(slot, nullptr), {&grad, &at}, stream, {rows, width}, dtype_of<T>);
      launch_call(stream, SumRowsCall<T>{RowsOf::embedding, input<T>(from), input<std::int64_t>(at),
                                         output<T>(out, stream), static_cast<std::size_t>(rows),
                                         static_cast<std::size_t>(width), padding,
                                         static_cast<std::size_t>(repeats)});
      return out;
    });
  }
  std::array<Tensor, 2> backward(const Backward& saved, const Tensor& grad) const;
};

// Linear in the weight.
struct EmbeddingOp {
  static constexpr const char* name = "embedding";
  std::int64_t padding;
  bool sparse = false;
  std::int64_t rows = 0;
  Saved indices = {};

  Tensor forward(const Tensor& weight, const Tensor& at) {
    indices = at;
    rows = weight.sizes()[0];
    return take(RowsOf::embedding, weight, 0, at);
  }
  std::array<Tensor, 2> backward(const Backward& saved, const Tensor& grad) const {
    if (sparse) return {embedding_sparse_grad(grad, saved(indices), rows, padding), Tensor()};
    const Tensor slot = saved.gradient_slot(0);
    return {apply(EmbeddingGradOp{rows, padding, &slot}, grad, saved(indices)), Tensor()};
  }
};

LOCKSTEP_INLINE std::array<Tensor, 2> EmbeddingGradOp::backward(const Backward& saved,
                                                                const Tensor& grad) const {
  const Tensor at = saved(indices);
  const Tensor taken = apply(EmbeddingOp{padding}, grad, at);
  if (padding == kNoPadding) return {taken, Tensor()};
  return {where(unsqueeze(ne(at, padding), -1), taken, 0), Tensor()};
}

LOCKSTEP_INLINE std::int64_t wrap_padding(const char* operation,
                                          std::optional<std::int64_t> padding, std::int64_t rows) {
  if (!padding) return kNoPadding;
  check<ValueError>(*padding >= -rows && *padding < rows, operation,
                    ": expected a padding_idx within the ", rows, " embeddings, got ", *padding);
  return *padding < 0 ? *padding + rows : *padding;
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor embedding(const Tensor& indices, const Tensor& weight,
                                 std::optional<std::int64_t> padding_idx, bool sparse) {
  detail::check_same_device("embedding", "the indices", indices, "the weight", weight);
  check<DtypeError>(indices.dtype() == Dtype::i64 || indices.dtype() == Dtype::i32,
                    "embedding: expected indices of i64 or i32, got ", indices.dtype());
  check<ShapeError>(weight.dim() == 2,
                    "embedding: expected a weight of shape [embeddings, width], got ",
                    weight.sizes());
  check<DtypeError>(!sparse || weight.dtype() == Dtype::f32 || weight.dtype() == Dtype::f64,
                    "embedding: sparse gradients are there for weights of f32 and f64, not of ",
                    weight.dtype());
  detail::check_floating("embedding", weight);
  const std::int64_t padding = detail::wrap_padding("embedding", padding_idx, weight.size(0));
  return apply(detail::EmbeddingOp{padding, sparse}, weight, detail::cast(indices, Dtype::i64));
}

}  // namespace lockstep
