// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/scalar.hpp>
#include <lockstep/tensor/tensor.hpp>

// Comparisons, element by element: boolean tensors, true where the relation holds.
//
// Two tensors are stretched to a common shape; they are of one dtype and device. A number takes the
// tensor's dtype, and has to be a whole one for integers. A NaN is unequal to everything, and
// neither less nor greater.
//
// **Torch counterpart.** The functions of these names in torch.
// **Backward.** None: they are not differentiable.
// **Threads and exceptions.** A DeviceError, DtypeError or ShapeError names both operands.
// **Example.** `sum(eq(argmax(out, 1), labels)).item<std::int64_t>()` of a batch are right.
namespace lockstep {

// a = b
Tensor eq(const Tensor& a, const Tensor& b);
Tensor eq(const Tensor& a, Scalar b);
// a ≠ b
Tensor ne(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, Scalar b);
// a < b
Tensor lt(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, Scalar b);
// a ≤ b
Tensor le(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, Scalar b);
// a > b
Tensor gt(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, Scalar b);
// a ≥ b
Tensor ge(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, Scalar b);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/compare.ipp>
#endif
