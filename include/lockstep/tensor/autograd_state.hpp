// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/scoped_value.hpp>

namespace lockstep::detail {

// A thread's settings for autograd, which the guards in autograd/ and a running operation set.
//
// The struct is defined here, below autograd, since a new tensor is marked by it.
//
// **Torch counterpart.** c10::AutogradState.
struct AutogradState {
  bool grad = true;
  bool inference = false;   // nothing is recorded then, even where a guard turns `grad` on
  bool saving = false;      // a recorded operation's forward runs
  bool discarding = false;  // the forward of one that is not recorded runs

  bool records() const { return grad && !inference; }
  // Whether what an operation saves is dropped, since no backward will read it. It is kept where
  // recording is on: there, the forward of an operation that is not recorded may make others that
  // are.
  bool discards() const { return discarding && !records(); }
};

inline AutogradState& autograd_state() {
  static constinit thread_local AutogradState state;
  return state;
}

// Makes `state` the calling thread's until destroyed.
struct AutogradStateScope : ScopedValue<AutogradState> {
  explicit AutogradStateScope(const AutogradState& state) : ScopedValue(autograd_state(), state) {}
};

}  // namespace lockstep::detail
