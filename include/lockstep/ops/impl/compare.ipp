// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/ops/compare.hpp>
#include <lockstep/ops/elementwise.hpp>
#include <lockstep/ops/kernels/comparison.hpp>
#include <lockstep/ops/kernels/elementwise_kernels.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/scalar.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>

namespace lockstep::detail {

// The tensor in a dtype for which there is a kernel, and in which it compares the same.
inline Tensor comparable(const Tensor& x) {
  const bool small = x.dtype() == Dtype::u8 || x.dtype() == Dtype::boolean;
  return small ? cast(x, Dtype::i32) : widened(x);
}

inline const char* name_of(By by) {
  constexpr const char* kNames[] = {"eq", "ne", "lt", "le", "gt", "ge"};
  return kNames[static_cast<std::size_t>(by)];
}

LOCKSTEP_INLINE Tensor compare(By by, const Tensor& a, const Tensor& b) {
  const char* const operation = name_of(by);
  check_same_kind(operation, "the first operand", a, "the second operand", b);
  const Tensor left = comparable(a);
  return dispatch_numeric(left.dtype(), operation, [&]<class T>(T) {
    return map<T, bool>(operation, left, comparable(b), Compare<T>{by});
  });
}

LOCKSTEP_INLINE Tensor compare(By by, const Tensor& a, Scalar b) {
  const char* const operation = name_of(by);
  check_defined(operation, "the tensor", a);
  const Tensor left = comparable(a);
  const Scalar number = rounded_to_half(a.dtype(), b);
  return dispatch_numeric(left.dtype(), operation, [&]<class T>(T) {
    return map<T, bool>(left, CompareTo<T>{{by}, scalar<T>(operation, number)});
  });
}

}  // namespace lockstep::detail
