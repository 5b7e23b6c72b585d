// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

namespace lockstep {

// The larger and the smaller of two elements. If either is NaN, so is the result.
//
// The tensors are broadcast against each other. They are on one device and of one dtype:
// floating-point, i64 or i32. `clamp` compares with numbers.
//
// **Torch counterpart.** torch.maximum, torch.minimum, without promotion between dtypes except
// autocast's (ops/arithmetic.hpp).
// **Backward.** The gradient goes to the operand that was taken; half of it to each where they are
// equal.
// **Threads and exceptions.** A DeviceError, DtypeError or ShapeError names both operands.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);

// The largest or the smallest elements, and their indices as i64.
struct Extremes {
  Tensor values;
  Tensor indices;
};

// The largest or smallest element along a dimension, the first of equal ones, and its index. A NaN
// counts as both. With `keepdim` the dimension stays, with size 1. The dtypes are those of maximum.
//
// **Torch counterpart.** torch.max(x, dim), torch.min(x, dim).
// **Backward.** The gradient goes to the element that was taken.
// **Threads and exceptions.** An IndexError for a dimension out of range or of size 0.
// **Example.** `const auto [values, indices] = max(x, 1);`
Extremes max(const Tensor& x, std::int64_t dim, bool keepdim = false);
Extremes min(const Tensor& x, std::int64_t dim, bool keepdim = false);

// The largest and the smallest of all elements.
//
// **Torch counterpart.** torch.max(x), torch.min(x).
// **Backward.** The gradient is divided evenly among all elements equal to it.
// **Threads and exceptions.** An IndexError if there is no element.
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/max.ipp>
#endif
