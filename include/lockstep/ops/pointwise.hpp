// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/tensor/scalar.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <optional>

// Element-wise functions of one floating-point tensor; `relu`, `abs`, `square` and `clamp` also
// take i64 and i32.
//
// **Torch counterpart.** The functions of these names in torch.
// **Threads and exceptions.** A DtypeError for a tensor of another dtype.
namespace lockstep {

// max(x, 0). **Backward.** 0 at 0.
Tensor relu(const Tensor& x);
Tensor exp(const Tensor& x);
// The natural logarithm.
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor tanh(const Tensor& x);
// 1 / (1 + exp(−x))
Tensor sigmoid(const Tensor& x);
// x · sigmoid(x)
Tensor silu(const Tensor& x);
// x where it is positive, else negative_slope · x.
//
// **Threads and exceptions.** A ValueError for a slope that is not finite in the dtype of the
// computation.
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
// **Backward.** 0 at 0.
Tensor abs(const Tensor& x);
Tensor square(const Tensor& x);
// x to the power of the exponent, which is rounded to the dtype of the computation. For ½ it is
// sqrt(x), as in torch, so NaN for −∞.
Tensor pow(const Tensor& x, double exponent);
// Limits x to the range from `min` to `max`, of which one may be absent. If `min` is larger, all
// elements become `max`.
//
// **Backward.** 0 outside the bounds and on them.
// **Threads and exceptions.** A ValueError without both bounds.
// **Example.** `clamp(x, 0, 1)`, `clamp(x, {}, 1)`
Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max = {});

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/pointwise.ipp>
#endif
