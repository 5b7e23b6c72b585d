// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/scoped_value.hpp>
#include <lockstep/tensor/autograd_state.hpp>

namespace lockstep {

// True if this thread records operations for backward. (Exception: in inference mode nothing is
// recorded, also within a GradModeGuard(true), where this is true.)
//
// **Torch counterpart.** torch.is_grad_enabled.
inline bool is_grad_enabled() { return detail::autograd_state().grad; }

// Turns recording on or off for this thread until the guard is destroyed. Within inference mode it
// stays off.
//
// **Torch counterpart.** torch::AutoGradMode.
struct GradModeGuard : detail::ScopedValue<bool> {
  explicit GradModeGuard(bool enabled) : ScopedValue(detail::autograd_state().grad, enabled) {}
};

// Turns recording off for this thread until the guard is destroyed.
//
// **Torch counterpart.** torch::NoGradGuard.
struct NoGradGuard : GradModeGuard {
  NoGradGuard() : GradModeGuard(false) {}
};

}  // namespace lockstep
