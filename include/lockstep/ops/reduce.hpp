// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

// Sums, means, variances and the index of the largest element.
namespace lockstep {

// The sum over the listed dimensions, or over all if none is listed. With `keepdim` they stay, with
// size 1.
//
// Floating-point elements are summed in double, and the sum is rounded to their dtype. (Half
// precision is rounded to f32 first, and stays f32 under autocast.) Integers and booleans give i64.
// The same input gives the same bits.
//
// **Torch counterpart.** torch.sum.
// **Threads and exceptions.** An IndexError for a dimension out of range, a ValueError for one that
// is listed twice.
// **Example.** `sum(x, {0, 2})`, `sum(x, {-1}, true)`
inline Tensor sum(const Tensor& x, const Shape& dims = {}, bool keepdim = false) {
  return x.sum(dims, keepdim);
}

// The mean over the listed dimensions, as `sum`, of a floating-point tensor. The result has the
// tensor's dtype, under autocast too. Without elements it is NaN.
//
// **Torch counterpart.** torch.mean.
// **Threads and exceptions.** As sum; a DtypeError unless the tensor is floating-point.
inline Tensor mean(const Tensor& x, const Shape& dims = {}, bool keepdim = false) {
  return x.mean(dims, keepdim);
}

// The variance over the listed dimensions, as `mean`: the sum of (x − mean)² divided by the number
// of elements less `correction`, but at least by 0; `std` is its square root. Half precision is
// computed in f32, and `std` in f64, since the square may be out of the dtype's range.
//
// **Torch counterpart.** torch.var, torch.std.
// **Threads and exceptions.** As mean.
// **Example.** `var(x)`, `var(x, {0}, 0)` without Bessel's correction
Tensor var(const Tensor& x, const Shape& dims = {}, double correction = 1, bool keepdim = false);
Tensor std(const Tensor& x, const Shape& dims = {}, double correction = 1, bool keepdim = false);

// The index, as i64, of the largest element along `dim`, the first of equal ones.
//
// **Torch counterpart.** torch.argmax. **Backward.** None.
Tensor argmax(const Tensor& x, std::int64_t dim, bool keepdim = false);

namespace detail {

// The same, for a function called `name`.
Tensor argmax(const char* name, const Tensor& x, std::int64_t dim, bool keepdim);

}  // namespace detail

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/reduce.ipp>
#endif
