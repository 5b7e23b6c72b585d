// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/node.hpp>
#include <lockstep/config.hpp>

namespace lockstep::detail {

// Throws the exception that is being handled on, with the node and its device added to its text.
//
// The type stays the same. So an exception of a type that is neither lockstep/error.hpp's nor
// <stdexcept>'s, such as std::bad_alloc or one of the user's own, comes as it is.
[[noreturn]] void rethrow_from(const Node& node);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/autograd/backward_error.ipp>
#endif
