// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/scoped_value.hpp>
#include <lockstep/tensor/autograd_state.hpp>

namespace lockstep {

// True if this thread records operations for backward. (It is also true within a
// GradModeGuard(true) in inference mode, where nothing is recorded.)
//
// **Torch counterpart.** torch.is_grad_enabled.
inline bool is_grad_enabled() { return detail::autograd_state().grad; }

// Turns recording on or off for this thread until the guard is destroyed. In inference mode it
// stays off.
//
// **Torch counterpart.** torch::AutoGradMode.
struct GradModeGuard : detail::ScopedValue<bool> {
  [[nodiscard]] explicit GradModeGuard(bool enabled)
      : ScopedValue(detail::autograd_state().grad, enabled) {}
};

// Turns recording off for this thread until the guard is destroyed.
//
// **Torch counterpart.** torch::NoGradGuard.
struct NoGradGuard : GradModeGuard {
  [[nodiscard]] NoGradGuard() : GradModeGuard(false) {}
};

}  // namespace lockstep
