// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

namespace lockstep::detail {

// What a thread has set for autograd: by the guards in autograd/, and while an operation runs.
//
// It is here, below autograd, since making a tensor asks for it.
//
// **Torch counterpart.** c10::AutogradState.
struct AutogradState {
  bool grad = true;
  bool inference = false;   // grad is off then unless a guard within turns it on, to no effect
  bool saving = false;      // in the forward of an operation that is recorded
  bool discarding = false;  // in the forward of one that is not

  bool records() const { return grad && !inference; }
  // Whether nobody will ask for what is saved. An operation that is not recorded may build others
  // in its forward that are, where grad is on.
  bool discards() const { return discarding && !records(); }
};

inline AutogradState& autograd_state() {
  static constinit thread_local AutogradState state;
  return state;
}

// Makes `state` the calling thread's until destroyed.
class AutogradStateScope {
 public:
  explicit AutogradStateScope(const AutogradState& state) : before_(autograd_state()) {
    autograd_state() = state;
  }
  AutogradStateScope(const AutogradStateScope&) = delete;
  AutogradStateScope& operator=(const AutogradStateScope&) = delete;
  ~AutogradStateScope() { autograd_state() = before_; }

 private:
  const AutogradState before_;
};

}  // namespace lockstep::detail
