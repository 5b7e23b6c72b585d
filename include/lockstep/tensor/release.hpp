// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <memory>

namespace lockstep::detail {

// Drops a reference to a part of an autograd graph. The parts own one another in chains as long as
// the recorded program, so nested destructors would overflow the stack; the outermost call on a
// thread destroys the parts one after another.
void release(std::shared_ptr<void> object) noexcept;

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/tensor/impl/release.ipp>
#endif
