// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/scoped_value.hpp>

namespace lockstep::detail {

// A thread's autograd settings. The guards in autograd/ and running operations set them.
//
// It is defined here, below autograd, since a new tensor reads `inference`.
//
// **Torch counterpart.** c10::AutogradState.
struct AutogradState {
  bool grad = true;
  bool inference = false;   // turns recording off, whatever `grad` says
  bool saving = false;      // in the forward of a recorded operation
  bool discarding = false;  // in the forward of one that is not recorded

  bool records() const { return grad && !inference; }
  // True if what an operation saves for backward is dropped. With recording on it is kept: there,
  // the forward of an unrecorded operation may call others that are recorded.
  bool discards() const { return discarding && !records(); }
};

inline AutogradState& autograd_state() {
  static constinit thread_local AutogradState state;
  return state;
}

// Makes `state` the calling thread's settings until destroyed.
struct AutogradStateScope : ScopedValue<AutogradState> {
  explicit AutogradStateScope(const AutogradState& state) : ScopedValue(autograd_state(), state) {}
};

}  // namespace lockstep::detail
