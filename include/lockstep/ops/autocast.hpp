// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <utility>
#include <vector>

// With autocast on, an operation first calls itself with converted arguments and autocast off. The
// conversions are recorded, so gradients come back in the arguments' dtypes.
namespace lockstep::detail {

inline bool autocast_converts(const Tensor& x) {
  return x.defined() && is_floating_point(x.dtype()) && x.dtype() != Dtype::f64;
}

// A tensor, or several, converted to `dtype` if autocast converts it; any other argument as it is.
inline Tensor autocast_argument(const Tensor& x, Dtype dtype) {
  return autocast_converts(x) ? x.to(dtype) : x;
}
inline std::vector<Tensor> autocast_argument(const std::vector<Tensor>& list, Dtype dtype) {
  std::vector<Tensor> converted;
  for (const Tensor& x : list) converted.push_back(autocast_argument(x, dtype));
  return converted;
}
template <class T>
requires(!std::derived_from<T, Tensor>) const T& autocast_argument(const T& argument, Dtype) {
  return argument;
}

template <class F, class... Args>
Tensor autocast_to(Dtype dtype, const F& operation, const Args&... args) {
  const AutocastGuard off(false);
  try {
    return operation(autocast_argument(args, dtype)...);
  } catch (const DtypeError&) {
    // An operation that refuses the converted arguments refuses the original ones, too, and its
    // error then names their dtypes.
    (void)operation(args...);
    throw;
  }
}

// operation(args...) in autocast's dtype, for products.
template <class F, class... Args>
Tensor autocast_to_half(const F& operation, const Args&... args) {
  return autocast_to(autocast_dtype(), operation, args...);
}

// operation(args...) in f32, for what loses too much in half precision.
template <class F, class... Args>
Tensor autocast_to_f32(const F& operation, const Args&... args) {
  return autocast_to(Dtype::f32, operation, args...);
}

// operation(x, args...) for half precision with autocast off: computed in f32 and rounded to the
// dtype of x once.
template <class F, class... Args>
Tensor half_through_f32(const F& operation, const Tensor& x, const Args&... args) {
  return operation(x.to(Dtype::f32), autocast_argument(args, Dtype::f32)...).to(x.dtype());
}

// True if autocast converts the tensors, which are defined, to one dtype.
inline bool autocast_promotes(const std::vector<Tensor>& tensors) {
  return is_autocast_enabled() &&
         any_of(tensors, [&](const Tensor& x) { return x.dtype() != tensors[0].dtype(); });
}
inline bool autocast_promotes(const Tensor& a, const Tensor& b) {
  return is_autocast_enabled() && a.defined() && b.defined() && a.dtype() != b.dtype();
}

// Applies an operation to two tensors of one dtype. Under autocast different dtypes become f32.
template <class Op>
Tensor apply_to_both(Op op, const Tensor& a, const Tensor& b) {
  if (autocast_promotes(a, b)) {
    return autocast_to_f32(
        [&op](const Tensor& x, const Tensor& y) { return apply_to_both(op, x, y); }, a, b);
  }
  check_same_kind(Op::name, "the first operand", a, "the second operand", b);
  return apply(std::move(op), a, b);
}

}  // namespace lockstep::detail
