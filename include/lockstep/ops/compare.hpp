// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

// Where the elements are equal, as a boolean tensor; the operands are stretched to a common shape
// and of one dtype and device.
//
// **Torch counterpart.** torch.eq. **Backward.** None: it is not differentiable.
// **Example.** How many of a batch are right: `sum(eq(argmax(out, 1),
// labels)).item<std::int64_t>()`
Tensor eq(const Tensor& a, const Tensor& b);
Tensor eq(const Tensor& a, double b);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/compare.ipp>
#endif
