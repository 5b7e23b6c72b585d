// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/kernels/reduce_kernels.hpp>
#include <lockstep/ops/layout.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/tensor.hpp>
#include <lockstep/tensor/walk.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep::detail {

// The computation of sum_dims, from elements of type In to Out.
template <class In, class Out>
Tensor sum_as(const Tensor& x, const DimSet& over, const Shape& shape, double divisor) {
  std::array<Shape, 2> sizes;  // kept, reduced
  std::array<Shape, 2> strides;
  for (std::size_t d = 0; d < x.sizes().size(); ++d) {
    sizes[over[d]].push_back(x.sizes()[d]);
    strides[over[d]].push_back(x.strides()[d]);
  }
  const Stream stream = current_stream(x.device());
  const Tensor result = empty_on(stream, shape, dtype_of<Out>);
  if (result.numel() == 0) return result;
  launch_call(stream, SumCall<In, Out>{strided_input<In>(x), output<Out>(result, stream),
                                       make_walk<1>(sizes[0], {strides[0]}),
                                       make_walk<1>(sizes[1], {strides[1]}), divisor});
  return result;
}

struct SumOp {
  static constexpr const char* name = "sum";
  DimSet over;
  Shape shape;
  double divisor = 1;
  Shape from = {};

  Tensor forward(const Tensor& x) {
    from = x.sizes();
    return compute_elements(x.dtype(), name, [&]<class T>(T) {
      return sum_as<T, T>(widened(x), over, shape, divisor);
    });
  }
  Tensor backward(const Backward&, const Tensor& grad) const {
    Shape aligned = from;
    for (std::size_t d = 0; d < aligned.size(); ++d) {
      if (over[d]) aligned[d] = 1;
    }
    const Tensor share = divisor == 1 ? grad : div(grad, divisor);
    return expand_to(reshape(share, aligned), from);
  }
};

LOCKSTEP_INLINE Tensor sum_dims(const Tensor& x, const DimSet& over, const Shape& shape,
                                double divisor) {
  return apply(SumOp{over, shape, divisor}, x);
}

LOCKSTEP_INLINE Tensor sum_integers(const Tensor& x, const DimSet& over, const Shape& shape) {
  if (x.dtype() == Dtype::i64) return sum_as<std::int64_t, std::int64_t>(x, over, shape, 1);
  if (x.dtype() == Dtype::i32) return sum_as<std::int32_t, std::int64_t>(x, over, shape, 1);
  return sum_as<std::uint8_t, std::int64_t>(x, over, shape, 1);  // a bool is a byte of 0 or 1
}

LOCKSTEP_INLINE Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.sizes() == shape) return x;
  DimSet over;
  const std::size_t added = x.sizes().size() - shape.size();
  for (std::size_t d = 0; d < x.sizes().size(); ++d) {
    over[d] = d < added || (shape[d - added] == 1 && x.sizes()[d] != 1);
  }
  return sum_dims(x, over, shape);
}

struct ExpandOp {
  static constexpr const char* name = "expand";
  Shape shape;
  Shape from = {};

  Tensor forward(const Tensor& x) {
    from = x.sizes();
    return make_view(x, shape, broadcast_strides(x, shape), x.impl()->offset);
  }
  Tensor backward(const Backward&, const Tensor& grad) const { return sum_to(grad, from); }
};

LOCKSTEP_INLINE Tensor expand_to(const Tensor& x, const Shape& shape) {
  return x.sizes() == shape ? x : apply(ExpandOp{shape}, x);
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor Tensor::expand(const Shape& shape) const {
  const Shape& from = sizes();
  check<ShapeError>(shape.size() >= from.size(), "expand: the shape ", shape,
                    " has fewer dimensions than the tensor, which is of shape ", from);
  Shape target = shape;
  const std::size_t added = shape.size() - from.size();
  for (std::size_t d = 0; d < shape.size(); ++d) {
    check<ShapeError>(shape[d] >= 0 || (shape[d] == -1 && d >= added), "expand: size ", shape[d],
                      " at dimension ", d, " of ", shape, " for a tensor of shape ", from);
    if (d < added) continue;
    if (shape[d] == -1) target[d] = from[d - added];
    check<ShapeError>(
        target[d] == from[d - added] || from[d - added] == 1, "The expanded size of the tensor (",
        target[d], ") must match the existing size (", from[d - added],
        ") at non-singleton dimension ", d, ". Target sizes: ", shape, ". Tensor sizes: ", from);
  }
  return apply(detail::ExpandOp{target}, *this);
}

}  // namespace lockstep
