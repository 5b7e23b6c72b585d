// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

// Sums, means, variances and the place of the greatest element.
namespace lockstep {

// The sum over the dimensions listed; over all if none is. With `keepdim` they stay, of size 1.
//
// Floating-point elements are summed in double, and the sum is rounded to their dtype (to f32 first
// if they are of half precision, and it stays f32 where autocast is on). Integers and booleans give
// i64. The same input gives the same bits.
//
// **Torch counterpart.** torch.sum.
// **Threads and exceptions.** An IndexError for a dimension out of range, a ValueError for one that
// is listed twice.
// **Example.** `sum(x, {0, 2})`, `sum(x, {-1}, true)`
inline Tensor sum(const Tensor& x, const Shape& dims = {}, bool keepdim = false) {
  return x.sum(dims, keepdim);
}

// The mean over the dimensions listed, as `sum`, of floating-point tensors; the result has the
// tensor's dtype, also where autocast is on. Of no elements it is NaN.
//
// **Torch counterpart.** torch.mean.
// **Threads and exceptions.** As sum; a DtypeError unless the tensor is floating-point.
inline Tensor mean(const Tensor& x, const Shape& dims = {}, bool keepdim = false) {
  return x.mean(dims, keepdim);
}

// The variance over the dimensions listed, as `mean`: the sum of (x − mean)² divided by the number
// of elements less `correction`, and at least by 0; `std` is its root. Half precision is computed
// in f32, and `std` in f64, since the square may be beyond the dtype's range.
//
// **Torch counterpart.** torch.var, torch.std.
// **Threads and exceptions.** As mean.
// **Example.** `var(x)`, `var(x, {0}, 0)` without Bessel's correction
Tensor var(const Tensor& x, const Shape& dims = {}, double correction = 1, bool keepdim = false);
Tensor std(const Tensor& x, const Shape& dims = {}, double correction = 1, bool keepdim = false);

// The index of the greatest element along `dim`, the first of equals, as i64.
//
// **Torch counterpart.** torch.argmax. **Backward.** None: it is not differentiable.
Tensor argmax(const Tensor& x, std::int64_t dim, bool keepdim = false);

namespace detail {

// The same for the function of this name.
Tensor argmax(const char* name, const Tensor& x, std::int64_t dim, bool keepdim);

}  // namespace detail

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/reduce.ipp>
#endif
