// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

// The members of Tensor that change its elements.
//
// They are not recorded. Where recording is on, it is an AutogradError to change a tensor that
// requires grad, or to change a tensor by one. A backward that needs a tensor unchanged notices the
// change by its version. An inference tensor is changed in inference mode only.
//
// **Torch counterpart.** The members of these names.

namespace lockstep::detail {

// Throws unless the tensor may be changed, and each of its elements has memory of its own.
void check_changeable(const Tensor& tensor, const char* operation);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/inplace.ipp>
#endif
