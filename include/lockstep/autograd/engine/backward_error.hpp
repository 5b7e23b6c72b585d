// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/node.hpp>
#include <lockstep/config.hpp>

namespace lockstep::detail {

// Rethrows the exception that is being handled, with the node and its device added to its text.
//
// The type stays the same. So the text of an exception whose type is neither of lockstep/error.hpp
// nor of <stdexcept>, such as std::bad_alloc or one of the user's own, stays as it is.
[[noreturn]] void rethrow_from(const Node& node);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/autograd/engine/impl/backward_error.ipp>
#endif
