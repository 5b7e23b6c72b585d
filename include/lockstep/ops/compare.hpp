// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/ops/kernels/comparison.hpp>
#include <lockstep/tensor/scalar.hpp>
#include <lockstep/tensor/tensor.hpp>

// Element-wise comparisons. They give boolean tensors, true where the relation holds.
//
// Two tensors are broadcast against each other, and are of one dtype and device. A number is
// converted to the tensor's dtype, and must be whole for integers. A NaN is unequal to everything,
// and neither less nor greater.
//
// **Torch counterpart.** The functions of these names in torch.
// **Backward.** None.
// **Threads and exceptions.** A DeviceError, DtypeError or ShapeError names both operands.
// **Example.** `sum(eq(argmax(out, 1), labels)).item<std::int64_t>()` of a batch are right.
namespace lockstep {

namespace detail {

Tensor compare(By by, const Tensor& a, const Tensor& b);
Tensor compare(By by, const Tensor& a, Scalar b);

}  // namespace detail

// a = b
inline Tensor eq(const Tensor& a, const Tensor& b) { return detail::compare(detail::By::eq, a, b); }
inline Tensor eq(const Tensor& a, Scalar b) { return detail::compare(detail::By::eq, a, b); }
// a ≠ b
inline Tensor ne(const Tensor& a, const Tensor& b) { return detail::compare(detail::By::ne, a, b); }
inline Tensor ne(const Tensor& a, Scalar b) { return detail::compare(detail::By::ne, a, b); }
// a < b
inline Tensor lt(const Tensor& a, const Tensor& b) { return detail::compare(detail::By::lt, a, b); }
inline Tensor lt(const Tensor& a, Scalar b) { return detail::compare(detail::By::lt, a, b); }
// a ≤ b
inline Tensor le(const Tensor& a, const Tensor& b) { return detail::compare(detail::By::le, a, b); }
inline Tensor le(const Tensor& a, Scalar b) { return detail::compare(detail::By::le, a, b); }
// a > b
inline Tensor gt(const Tensor& a, const Tensor& b) { return detail::compare(detail::By::gt, a, b); }
inline Tensor gt(const Tensor& a, Scalar b) { return detail::compare(detail::By::gt, a, b); }
// a ≥ b
inline Tensor ge(const Tensor& a, const Tensor& b) { return detail::compare(detail::By::ge, a, b); }
inline Tensor ge(const Tensor& a, Scalar b) { return detail::compare(detail::By::ge, a, b); }

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/compare.ipp>
#endif
