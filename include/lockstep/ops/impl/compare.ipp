// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/ops/compare.hpp>
#include <lockstep/ops/elementwise.hpp>
#include <lockstep/ops/kernels/elementwise_kernels.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

LOCKSTEP_INLINE Tensor eq(const Tensor& a, const Tensor& b) {
  detail::check_same_kind("eq", "the first operand", a, "the second operand", b);
  return dispatch_all(
      a.dtype(), [&]<class T>(T) { return detail::map<T, bool>("eq", a, b, detail::Equal<T>{}); });
}

LOCKSTEP_INLINE Tensor eq(const Tensor& a, double b) {
  return dispatch_numeric(a.dtype(), "eq", [&]<class T>(T) {
    return detail::map<T, bool>(a, detail::EqualTo<T>{detail::scalar<T>("eq", b)});
  });
}

}  // namespace lockstep
