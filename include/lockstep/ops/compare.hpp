// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/ops/elementwise.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

// Where the elements are equal, as a boolean tensor; the operands are stretched to a common shape
// and of one dtype and device.
//
// **Torch counterpart.** torch.eq. **Backward.** None: it is not differentiable.
// **Example.** How many of a batch are right: `sum(eq(argmax(out, 1),
// labels)).item<std::int64_t>()`
inline Tensor eq(const Tensor& a, const Tensor& b) {
  detail::check_same_kind("eq", "the first operand", a, "the second operand", b);
  return dispatch_all(
      a.dtype(), [&]<class T>(T) { return detail::map<T, bool>("eq", a, b, detail::Equal<T>{}); });
}
inline Tensor eq(const Tensor& a, double b) {
  return dispatch_numeric(a.dtype(), "eq", [&]<class T>(T) {
    return detail::map<T, bool>(a, detail::EqualTo<T>{detail::scalar<T>("eq", b)});
  });
}

}  // namespace lockstep
