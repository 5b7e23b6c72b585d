// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

// The greater of two elements, and the lesser. A NaN is the result whichever of them it is.
//
// The tensors are stretched to a common shape; they are on one device and of one dtype,
// floating-point or i64 or i32. `clamp` compares with numbers.
//
// **Torch counterpart.** torch.maximum, torch.minimum.
// **Backward.** Into the one that is taken; half of it into each where they are equal.
// **Threads and exceptions.** A DeviceError, DtypeError or ShapeError names both operands.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/max.ipp>
#endif
