// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/ops/compare.hpp>
#include <lockstep/ops/elementwise.hpp>
#include <lockstep/ops/kernels/elementwise_kernels.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/scalar.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep::detail {

// The tensor in a dtype that has a kernel, in which it compares the same.
inline Tensor comparable(const Tensor& x) {
  const bool small = x.dtype() == Dtype::u8 || x.dtype() == Dtype::boolean;
  return small ? cast(x, Dtype::i32) : widened(x);
}

inline Tensor compare(const char* operation, Comparison by, const Tensor& a, const Tensor& b) {
  check_same_kind(operation, "the first operand", a, "the second operand", b);
  const Tensor left = comparable(a);
  return dispatch_numeric(left.dtype(), operation, [&]<class T>(T) {
    return map<T, bool>(operation, left, comparable(b), Compare<T>{by});
  });
}

inline Tensor compare(const char* operation, Comparison by, const Tensor& a, Scalar b) {
  check_defined(operation, "the tensor", a);
  const Tensor left = comparable(a);
  const Scalar number = rounded_to_half(a.dtype(), b);
  return dispatch_numeric(left.dtype(), operation, [&]<class T>(T) {
    return map<T, bool>(left, CompareTo<T>{{by}, scalar<T>(operation, number)});
  });
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor eq(const Tensor& a, const Tensor& b) {
  return detail::compare("eq", detail::Comparison::eq, a, b);
}

LOCKSTEP_INLINE Tensor eq(const Tensor& a, Scalar b) {
  return detail::compare("eq", detail::Comparison::eq, a, b);
}

LOCKSTEP_INLINE Tensor ne(const Tensor& a, const Tensor& b) {
  return detail::compare("ne", detail::Comparison::ne, a, b);
}

LOCKSTEP_INLINE Tensor ne(const Tensor& a, Scalar b) {
  return detail::compare("ne", detail::Comparison::ne, a, b);
}

LOCKSTEP_INLINE Tensor lt(const Tensor& a, const Tensor& b) {
  return detail::compare("lt", detail::Comparison::lt, a, b);
}

LOCKSTEP_INLINE Tensor lt(const Tensor& a, Scalar b) {
  return detail::compare("lt", detail::Comparison::lt, a, b);
}

LOCKSTEP_INLINE Tensor le(const Tensor& a, const Tensor& b) {
  return detail::compare("le", detail::Comparison::le, a, b);
}

LOCKSTEP_INLINE Tensor le(const Tensor& a, Scalar b) {
  return detail::compare("le", detail::Comparison::le, a, b);
}

LOCKSTEP_INLINE Tensor gt(const Tensor& a, const Tensor& b) {
  return detail::compare("gt", detail::Comparison::gt, a, b);
}

LOCKSTEP_INLINE Tensor gt(const Tensor& a, Scalar b) {
  return detail::compare("gt", detail::Comparison::gt, a, b);
}

LOCKSTEP_INLINE Tensor ge(const Tensor& a, const Tensor& b) {
  return detail::compare("ge", detail::Comparison::ge, a, b);
}

LOCKSTEP_INLINE Tensor ge(const Tensor& a, Scalar b) {
  return detail::compare("ge", detail::Comparison::ge, a, b);
}

}  // namespace lockstep
