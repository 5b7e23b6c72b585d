// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <memory>

namespace lockstep::detail {

// Gives up a reference to a part of an autograd graph. The parts own one another in chains as long
// as the program that was recorded, so destroying one within the other's destructor would overflow
// the stack; instead the outermost call on a thread destroys them one after the other.
void release(std::shared_ptr<void> object) noexcept;

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/tensor/impl/release.ipp>
#endif
