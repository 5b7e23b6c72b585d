// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/scalar.hpp>
#include <lockstep/tensor/tensor.hpp>

// The members of Tensor that change its elements, and the operators.
//
// The members are not recorded. Where recording is on, it is an AutogradError to change a tensor
// that requires grad, or to change a tensor by one. A backward that needs a tensor unchanged
// notices the change by its version. An inference tensor is changed in inference mode only. A view
// that was made while recording was off is as one that detach() returns: it does not require grad,
// and what changes through it changes unrecorded. A tensor of which several elements are one in
// memory, such as an expanded one, is not changed: a ValueError, where torch fills it.
//
// **Torch counterpart.** The members of these names. add_, sub_ and mul_ change floating-point
// tensors and those of i32 and i64, div_ floating-point ones alone.

namespace lockstep {

// a = a + b and its like, in `a` itself: every handle on the tensor sees it. `b` is stretched to
// the shape of `a`; the result takes the dtype of `a`.
//
// Where it need not be recorded the elements change in place, and so do those of views. Otherwise
// the result is a new one, which the tensor takes over; so that none misses it, it is an
// AutogradError if another tensor shares the memory, as views and what some operations have saved
// do, and for a leaf that requires grad. Memory that was lent for the tensor (tensor/from_blob.hpp)
// stays as it was then. Where `b` comes from an operation that has saved `a`, as in `x += silu(x)`,
// there is no backward, and the memory is never freed.
//
// **Torch counterpart.** These operators, which torch also records for views.
// **Backward.** Into what `a` was made of, and into `b`.
// **Threads and exceptions.** As a + b; a ShapeError if the result is not of the shape of `a`. A
// backward that needs the tensor as it was notices the change.
// **Example.** `loss += 0.1 * penalty;`
const Tensor& operator+=(const Tensor& a, const Tensor& b);
const Tensor& operator+=(const Tensor& a, Scalar b);
const Tensor& operator-=(const Tensor& a, const Tensor& b);
const Tensor& operator-=(const Tensor& a, Scalar b);
const Tensor& operator*=(const Tensor& a, const Tensor& b);
const Tensor& operator*=(const Tensor& a, Scalar b);
const Tensor& operator/=(const Tensor& a, const Tensor& b);
const Tensor& operator/=(const Tensor& a, double b);

}  // namespace lockstep

namespace lockstep::detail {

// Throws unless the tensor may be changed, and each of its elements has memory of its own.
void check_changeable(const Tensor& tensor, const char* operation);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/inplace.ipp>
#endif
