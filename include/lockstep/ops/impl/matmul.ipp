// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/backend/host/blas.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/autocast.hpp>
#include <lockstep/ops/call_floating.hpp>
#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/kernels/tiled_gemm.hpp>
#include <lockstep/ops/layout.hpp>
#include <lockstep/ops/matmul.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/shape.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace lockstep::detail {

LOCKSTEP_INLINE Tensor product(const char* name, const Tensor& a, const Tensor& b, bool trans_a,
                               bool trans_b, const Tensor& bias, const Tensor* slot) {
  const std::size_t last = a.sizes().size() - 1;
  const std::int64_t m = a.sizes()[trans_a ? last : last - 1];
  const std::int64_t k = a.sizes()[trans_a ? last - 1 : last];
  const std::int64_t n = b.sizes()[trans_b ? last - 1 : last];
  Shape shape = {m, n};
  if (last == 2) shape.insert(0, a.sizes()[0]);

  const MatrixArgument from_a = as_matrix(a);
  const MatrixArgument from_b = as_matrix(b);
  const ReadMember from_bias{PackedWide(bias)};
  const Stream stream = current_stream(a.device());
  return compute_elements(a.dtype(), name, [&]<class T>(T) {
    Tensor result = empty_at(slot, {&a, &b}, stream, shape, dtype_of<T>);
    if (result.numel() == 0) return result;  // the product of its sizes may overflow
    Gemm<T> call{.a = strided_input<T>(from_a.tensor()),
                 .b = strided_input<T>(from_b.tensor()),
                 .bias = from_bias,
                 .c = output<T>(result, stream),
                 .m = m,
                 .n = n,
                 .k = k,
                 .lda = from_a.ld,
                 .ldb = from_b.ld,
                 .ldc = std::max<std::int64_t>(n, 1)};
    call.trans_a = trans_a != from_a.transposed;
    call.trans_b = trans_b != from_b.transposed;
    if (last == 2) {
      call.batch = shape[0];
      call.stride_a = from_a.batch_stride;
      call.stride_b = from_b.batch_stride;
      call.stride_c = m * n;
    }
    launch_gemm(stream, call);
    return result;
  });
}

// A product whose derivatives are products of the same kind.
struct Mm {
  static constexpr const char* name = "matmul";
  bool trans_a = false;
  bool trans_b = false;
  const Tensor* slot = nullptr;  // for the result
  Saved a = {};
  Saved b = {};

  Tensor forward(const Tensor& left, const Tensor& right) {
    if (right.requires_grad()) a = left;
    if (left.requires_grad()) b = right;
    return product(name, left, right, trans_a, trans_b, {}, std::exchange(slot, nullptr));
  }

  std::array<Tensor, 2> backward(const Backward& saved, const Tensor& grad) {
    std::array<Tensor, 2> grads;
    if (saved.needs(0)) {
      grads[0] = trans_a ? apply(Mm{trans_b, true}, saved(b), grad)
                         : apply(Mm{false, !trans_b}, grad, saved(b));
    }
    if (saved.needs(1)) {
      grads[1] = trans_b ? apply(Mm{true, trans_a}, grad, saved(a))
                         : apply(Mm{!trans_a, false}, saved(a), grad);
    }
    return grads;
  }
};

LOCKSTEP_INLINE Tensor mm(const Tensor& a, const Tensor& b, bool trans_a, bool trans_b,
                          const Tensor& slot) {
  return apply(Mm{trans_a, trans_b, &slot}, a, b);
}

// The tensor broadcast to the given batch, with all dimensions but the last two joined.
inline Tensor as_batch(const Tensor& tensor, const Shape& batch) {
  const Tensor expanded =
      expand_to(tensor, shape_of_matrices(batch, tensor.size(-2), tensor.size(-1)));
  if (batch.size() == 1) return expanded;
  return expanded.reshape({numel(batch), tensor.size(-2), tensor.size(-1)});
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor matmul(const Tensor& a, const Tensor& b) {
  if (is_autocast_enabled()) return detail::autocast_to_half(matmul, a, b);
  detail::check_same_kind("matmul", "the first operand", a, "the second", b);
  check<ShapeError>(a.dim() > 0 && b.dim() > 0,
                    "matmul: both operands need at least one dimension, got shapes ", a.sizes(),
                    " and ", b.sizes());
  const std::int64_t inner = b.dim() == 1 ? b.size(0) : b.size(-2);
  check<ShapeError>(a.size(-1) == inner, "matmul: shapes ", a.sizes(), " and ", b.sizes(),
                    " cannot be multiplied (", a.size(-1), " != ", inner, ")");
  if (a.dim() == 2 && b.dim() == 2) return detail::mm(a, b);
  if (a.dim() == 1 || b.dim() == 1) {
    // A vector becomes a matrix, whose dimension of size 1 is removed from the result.
    const Tensor product = matmul(a.dim() == 1 ? a.reshape({1, a.size(0)}) : a,
                                  b.dim() == 1 ? b.reshape({b.size(0), 1}) : b);
    Shape shape = product.sizes();
    if (b.dim() == 1) shape.erase(shape.size() - 1);
    if (a.dim() == 1) shape.erase(shape.size() - (b.dim() == 1 ? 1 : 2));
    return product.reshape(shape);
  }
  if (b.dim() == 2 && a.is_contiguous()) {  // one product of all rows
    Shape shape = a.sizes();
    shape[shape.size() - 1] = b.size(1);
    const std::int64_t rows = numel(shape) / std::max<std::int64_t>(b.size(1), 1);
    if (b.size(1) > 0) return detail::mm(a.reshape({rows, a.size(-1)}), b).reshape(shape);
  }
  const Shape batch =
      detail::broadcast_shapes("matmul (batches)", detail::batch_of(a), detail::batch_of(b));
  const Tensor product = detail::mm(detail::as_batch(a, batch), detail::as_batch(b, batch));
  if (batch.size() == 1) return product;
  return product.reshape(detail::shape_of_matrices(batch, a.size(-2), b.size(-1)));
}

}  // namespace lockstep
