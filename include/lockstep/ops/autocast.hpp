// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>

// Where autocast is on, an operation first calls itself with converted arguments, and with autocast
// off. The conversions are recorded, so gradients come back in the dtype of the argument.
namespace lockstep::detail {

// The argument in `dtype` if autocast converts it, and it is a tensor; else as it is.
inline Tensor autocast_argument(const Tensor& x, Dtype dtype) {
  const bool converts = x.defined() && is_floating_point(x.dtype()) && x.dtype() != Dtype::f64;
  return converts ? x.to(dtype) : x;
}
template <class T>
requires(!std::derived_from<T, Tensor>) const T& autocast_argument(const T& argument, Dtype) {
  return argument;
}

template <class F, class... Args>
Tensor autocast_to(Dtype dtype, const F& operation, const Args&... args) {
  const AutocastGuard off(false);
  return operation(autocast_argument(args, dtype)...);
}

// operation(args...) in the dtype of autocast: for products.
template <class F, class... Args>
Tensor autocast_to_half(const F& operation, const Args&... args) {
  return autocast_to(autocast_dtype(), operation, args...);
}

// operation(args...) in f32: for what loses too much in half precision.
template <class F, class... Args>
Tensor autocast_to_f32(const F& operation, const Args&... args) {
  return autocast_to(Dtype::f32, operation, args...);
}

}  // namespace lockstep::detail
