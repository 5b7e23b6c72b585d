// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/tensor/tensor.hpp>

// Functions of one tensor, element by element. Floating-point tensors are taken; `relu`, `abs` and
// `square` take i64 and i32 as well.
//
// **Torch counterpart.** The functions of these names in torch.
// **Threads and exceptions.** A DtypeError for a tensor of another dtype.
namespace lockstep {

// The greater of x and 0. **Backward.** 0 at 0.
Tensor relu(const Tensor& x);
Tensor exp(const Tensor& x);
// The natural logarithm.
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor tanh(const Tensor& x);
// 1 / (1 + exp(−x))
Tensor sigmoid(const Tensor& x);
// **Backward.** 0 at 0.
Tensor abs(const Tensor& x);
Tensor square(const Tensor& x);
Tensor pow(const Tensor& x, double exponent);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/pointwise.ipp>
#endif
