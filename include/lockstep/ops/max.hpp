// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

namespace lockstep {

// The greater of two elements, and the lesser. A NaN is the result whichever of them it is.
//
// The tensors are stretched to a common shape; they are on one device and of one dtype,
// floating-point or i64 or i32. `clamp` compares with numbers.
//
// **Torch counterpart.** torch.maximum, torch.minimum, without promotion between dtypes, but for
// that of autocast (ops/arithmetic.hpp).
// **Backward.** Into the one that is taken; half of it into each where they are equal.
// **Threads and exceptions.** A DeviceError, DtypeError or ShapeError names both operands.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);

// The greatest or the least elements, and their places as i64.
struct Extremes {
  Tensor values;
  Tensor indices;
};

// The greatest element along a dimension, the first of equals, and the least. With `keepdim` the
// dimension stays, of size 1. A NaN is taken for both. Of dtypes as above.
//
// **Torch counterpart.** torch.max(x, dim), torch.min(x, dim).
// **Backward.** Into the element that is taken.
// **Threads and exceptions.** An IndexError for a dimension out of range or of size 0.
// **Example.** `const auto [values, indices] = max(x, 1);`
Extremes max(const Tensor& x, std::int64_t dim, bool keepdim = false);
Extremes min(const Tensor& x, std::int64_t dim, bool keepdim = false);

// The greatest of all elements, and the least.
//
// **Torch counterpart.** torch.max(x), torch.min(x).
// **Backward.** Shared out evenly among all elements that are equal to it.
// **Threads and exceptions.** An IndexError if there is no element.
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/max.ipp>
#endif
