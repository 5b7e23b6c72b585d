// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/autocast.hpp>
#include <lockstep/ops/elementwise.hpp>
#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/kernels/where_kernels.hpp>
#include <lockstep/ops/layout.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/ops/where.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/fill.hpp>
#include <lockstep/tensor/scalar.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>
#include <lockstep/tensor/walk.hpp>

#include <array>
#include <type_traits>

namespace lockstep::detail {

struct WhereOp {
  static constexpr const char* name = "where";
  Saved condition = {};
  Shape shape_a = {};
  Shape shape_b = {};

  Tensor forward(const Tensor& chosen, const Tensor& a, const Tensor& b) {
    condition = chosen;
    shape_a = a.sizes();
    shape_b = b.sizes();
    const Shape shape =
        broadcast_shapes(name, broadcast_shapes(name, shape_a, shape_b), chosen.sizes());
    const Walk<3> walk =
        make_walk<3>(shape, {broadcast_strides(chosen, shape), broadcast_strides(a, shape),
                             broadcast_strides(b, shape)});
    const Stream stream = current_stream(a.device());
    Tensor out = empty_on(stream, shape, a.dtype());
    dispatch_moved(a.dtype(), [&]<class T>(T) {
      launch_call(stream, WhereCall<T>{strided_input<bool>(chosen), strided_input<T>(a),
                                       strided_input<T>(b), output<T>(out, stream), walk});
    });
    return out;
  }
  std::array<Tensor, 3> backward(const Backward& saved, const Tensor& grad) const {
    const Tensor chosen = saved(condition);
    std::array<Tensor, 3> grads;
    if (saved.needs(1)) grads[1] = sum_to(where(chosen, grad, 0), shape_a);
    if (saved.needs(2)) grads[2] = sum_to(where(chosen, 0, grad), shape_b);
    return grads;
  }
};

// `number` as a tensor of the dtype and device of `other`.
inline Tensor number_beside(const Tensor& other, Scalar number) {
  check_defined("where", "the operand", other);
  dispatch_all(other.dtype(), [&]<class T>(T) {
    if constexpr (std::is_integral_v<T>) (void)scalar<T>("where", number);
  });
  Tensor result = empty({}, other.options());
  fill(result, number, "where");
  return result;
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  if (detail::autocast_promotes(a, b)) {
    return detail::autocast_to_f32(
        [&](const Tensor& x, const Tensor& y) { return where(condition, x, y); }, a, b);
  }
  detail::check_same_device("where", "the condition", condition, "the first operand", a);
  detail::check_same_kind("where", "the first operand", a, "the second operand", b);
  check<DtypeError>(condition.dtype() == Dtype::boolean,
                    "where: expected a condition of bool, got ", condition.dtype());
  return apply(detail::WhereOp{}, condition, a, b);
}

LOCKSTEP_INLINE Tensor where(const Tensor& condition, const Tensor& a, Scalar b) {
  return where(condition, a, detail::number_beside(a, b));
}

LOCKSTEP_INLINE Tensor where(const Tensor& condition, Scalar a, const Tensor& b) {
  return where(condition, detail::number_beside(b, a), b);
}

}  // namespace lockstep
