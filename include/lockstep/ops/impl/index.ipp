// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/index.hpp>
#include <lockstep/ops/kernels/axis.hpp>
#include <lockstep/ops/kernels/index_kernels.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/row_kernels.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep::detail {

// How `index` selects from a tensor of this shape along `dim`.
inline Taking make_taking(RowsOf of, const Shape& shape, std::size_t dim, const Tensor& index) {
  const bool for_each = of == RowsOf::gather;
  const Axis axis(shape, dim);
  const std::int64_t taken = for_each ? index.sizes()[dim] : index.numel();
  return {of, axis.count, axis.inner, static_cast<std::size_t>(taken), for_each};
}

LOCKSTEP_INLINE Tensor take(RowsOf of, const Tensor& x, std::size_t dim, const Tensor& index) {
  const Taking taking = make_taking(of, x.sizes(), dim, index);
  Shape shape = index.sizes();
  if (!taking.for_each) {
    shape = x.sizes();
    shape.erase(dim);
    for (std::size_t d = 0; d < index.sizes().size(); ++d) shape.insert(dim + d, index.sizes()[d]);
  }
  const Tensor from = packed(x);
  const Stream stream = current_stream(x.device());
  Tensor out = empty_on(stream, shape, x.dtype());
  dispatch_moved(x.dtype(), [&]<class T>(T) {
    launch_call(stream, TakeCall<T>{input<T>(from), input<std::int64_t>(index),
                                    output<T>(out, stream), taking});
  });
  return out;
}

// Adds up the gradients of each of `count` elements along the dimension.
struct AddTakenOp {
  static constexpr const char* name = "take_backward";
  RowsOf of;
  std::size_t dim;
  std::int64_t count;
  Saved index = {};

  Tensor forward(const Tensor& grad, const Tensor& at) {
    index = at;
    const Stream stream = current_stream(grad.device());
    Shape shape = grad.sizes();
    shape[dim] = count;
    const Taking taking = make_taking(of, shape, dim, at);
    return compute_elements(grad.dtype(), name, [&]<class T>(T) {
      if (taking.for_each) {
        const Tensor from = packed_wide(grad);
        Tensor out = zeros(shape, {.dtype = dtype_of<T>, .device = grad.device()});
        launch_call(stream, AddTakenCall<T>{input<T>(from), input<std::int64_t>(at),
                                            output<T>(out, stream), taking});
        return out;
      }
      // The sum of rows is the sum along dimension 0.
      const auto along = static_cast<std::int64_t>(dim);
      const Tensor from = packed_wide(transpose(grad, 0, along));
      shape[dim] = shape[0];
      shape[0] = count;
      Tensor out = empty_on(stream, shape, dtype_of<T>);
      const std::size_t rows = taking.count;
      const auto width = static_cast<std::size_t>(numel(shape)) / (rows > 0 ? rows : 1);
      launch_call(stream, SumRowsCall<T>{of, input<T>(from), input<std::int64_t>(at),
                                         output<T>(out, stream), rows, width});
      return transpose(out, 0, along);
    });
  }
  std::array<Tensor, 2> backward(const Backward& saved, const Tensor& grad) const;
};

// Selects elements of x along a dimension: the transpose of AddTakenOp.
struct TakeOp {
  static constexpr const char* name = "take";
  RowsOf of;
  std::size_t dim;
  std::int64_t count = 0;
  Saved index = {};

  Tensor forward(const Tensor& x, const Tensor& at) {
    index = at;
    count = x.sizes()[dim];
    return take(of, x, dim, at);
  }
  std::array<Tensor, 2> backward(const Backward& saved, const Tensor& grad) const {
    return {apply(AddTakenOp{of, dim, count}, grad, saved(index)), Tensor()};
  }
};

LOCKSTEP_INLINE std::array<Tensor, 2> AddTakenOp::backward(const Backward& saved,
                                                           const Tensor& grad) const {
  return {apply(TakeOp{of, dim}, grad, saved(index)), Tensor()};
}

// The indices, contiguous and in i64. Throws if they cannot be indices into x.
inline Tensor checked_index(const char* operation, const Tensor& x, const Tensor& index) {
  check_same_device(operation, "the tensor", x, "the index", index);
  check<DtypeError>(index.dtype() == Dtype::i64 || index.dtype() == Dtype::i32, operation,
                    ": expected an index of i64 or i32, got ", index.dtype());
  check<ShapeError>(x.dim() > 0, operation, ": the tensor has no dimensions");
  return cast(index, Dtype::i64);
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor index_select(const Tensor& x, std::int64_t dim, const Tensor& index) {
  const Tensor at = detail::checked_index("index_select", x, index);
  check<ShapeError>(index.dim() == 1, "index_select: expected an index of shape [n], got ",
                    index.sizes());
  return apply(detail::TakeOp{detail::RowsOf::index_select, wrap_dim(dim, x.sizes().size())}, x,
               at);
}

LOCKSTEP_INLINE Tensor gather(const Tensor& x, std::int64_t dim, const Tensor& index) {
  const Tensor at = detail::checked_index("gather", x, index);
  const std::size_t along = wrap_dim(dim, x.sizes().size());
  bool fits = index.dim() == x.dim();
  Tensor part = x;
  for (std::size_t d = 0; d < x.sizes().size() && fits; ++d) {
    if (d == along) continue;
    fits = index.sizes()[d] <= x.sizes()[d];
    if (fits && index.sizes()[d] < x.sizes()[d])
      part = detail::narrow_at(part, d, 0, index.sizes()[d]);
  }
  check<ShapeError>(fits, "gather: an index of shape ", index.sizes(),
                    " does not fit a tensor of shape ", x.sizes(), " along dimension ", along);
  return apply(detail::TakeOp{detail::RowsOf::gather, along}, part, at);
}

}  // namespace lockstep
