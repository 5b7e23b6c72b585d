// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/scalar.hpp>
#include <lockstep/tensor/tensor.hpp>

// The members of Tensor that change its elements, and operators that do.
//
// The members are not recorded: with recording on, changing a tensor that requires grad, or by one
// that does, is an AutogradError. A backward that needs a tensor as it was notices the change by
// its version. An inference tensor can only be changed in inference mode. A view made while
// recording was off is like one from detach(): it does not require grad, and changes through it are
// unrecorded. Changing a tensor of which several elements share memory, such as an expanded one, is
// a ValueError; torch fills it.
//
// **Torch counterpart.** The members of these names. add_, sub_ and mul_ are for floating-point
// tensors and those of i32 and i64, div_ for floating-point ones.

namespace lockstep {

// a = a + b and the like, in `a` itself, so that every handle on it sees the change. `b` is
// broadcast to the shape of `a`, and the result has the dtype of `a`.
//
// If nothing needs recording, the elements change in place, and so do those of views. Otherwise `a`
// takes over the memory of a new tensor. It is then an AutogradError if `a` is a leaf that requires
// grad, or if another tensor, such as a view or one saved for backward, shares its memory and would
// miss the change; lent memory (tensor/from_blob.hpp) stays as it was. If `b` comes from an
// operation that has saved `a`, as in `x += silu(x)`, there is no backward, and the memory is never
// freed.
//
// **Torch counterpart.** These operators, which torch also records for views.
// **Backward.** Gradients of the previous `a` and of `b`.
// **Threads and exceptions.** As a + b; a ShapeError if the result does not have the shape of `a`.
// A backward that needs the tensor as it was notices the change.
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

// Throws unless the tensor may be changed in place, and each of its elements has memory of its own.
void check_changeable(const Tensor& tensor, const char* operation);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/inplace.ipp>
#endif
