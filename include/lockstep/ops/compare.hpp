// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

// A boolean tensor, true where the elements are equal. The operands are stretched to a common
// shape; they are of one dtype and device.
//
// **Torch counterpart.** torch.eq. **Backward.** None: it is not differentiable.
// **Threads and exceptions.** A DeviceError, DtypeError or ShapeError names both operands.
// **Example.** `sum(eq(argmax(out, 1), labels)).item<std::int64_t>()` of a batch are right.
Tensor eq(const Tensor& a, const Tensor& b);
Tensor eq(const Tensor& a, double b);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/compare.ipp>
#endif
