// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lockstep {

namespace detail {
inline bool& grad_mode() {
  static constinit thread_local bool enabled = true;
  return enabled;
}
}  // namespace detail

// True if this thread records operations for backward.
//
// **Torch counterpart.** torch.is_grad_enabled.
inline bool is_grad_enabled() { return detail::grad_mode(); }

// Turns recording on or off for this thread until the guard is destroyed.
//
// **Torch counterpart.** torch::AutoGradMode.
class GradModeGuard {
 public:
  explicit GradModeGuard(bool enabled) : before_(detail::grad_mode()) {
    detail::grad_mode() = enabled;
  }
  GradModeGuard(const GradModeGuard&) = delete;
  GradModeGuard& operator=(const GradModeGuard&) = delete;
  ~GradModeGuard() { detail::grad_mode() = before_; }

 private:
  const bool before_;
};

// **Torch counterpart.** torch::NoGradGuard.
struct NoGradGuard : GradModeGuard {
  NoGradGuard() : GradModeGuard(false) {}
};

}  // namespace lockstep
