// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

// Tensor's members that concern its place in the graph.

namespace lockstep::detail {

// Throws if an in-place change would silently make a gradient wrong.
void check_inplace(const Tensor& tensor, const char* operation);

// Throws if an inference tensor would be changed outside its mode.
void check_not_inference(const Tensor& tensor, const char* operation);

// Throws unless a gradient has its tensor's shape, dtype and device. `came` and `whose` are parts
// of the message, as in "set_grad: a gradient of shape [2] for a tensor of shape [3]".
void check_gradient(const char* came, const Tensor& gradient, const char* whose,
                    const Tensor& tensor);

// True if no other handle refers to this tensor's memory, so that it may be reused.
bool is_sole_owner(const Tensor& tensor);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/autograd/impl/variable.ipp>
#endif
