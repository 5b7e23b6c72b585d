// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/tensor/autograd_state.hpp>

namespace lockstep {

// True if this thread is in inference mode.
//
// **Torch counterpart.** torch.is_inference_mode_enabled.
inline bool is_inference_mode_enabled() { return detail::autograd_state().inference; }

// Puts this thread in inference mode until the guard is destroyed: for code whose results need no
// gradients.
//
// Nothing is recorded, and every new tensor is an inference tensor (`Tensor::is_inference`). It
// stays one: outside, it may be read and computed with, but neither changed by Tensor's in-place
// members and the operators, nor made to require grad, nor saved for a backward; each is an
// AutogradError. What is computed from it outside, a `clone()` for instance, is a normal tensor. A
// view is an inference tensor if its base is one, whatever the mode. A normal tensor may be changed
// in inference mode, and its version counts the change.
//
// With `enabled` false the guard leaves inference mode and turns recording on: for a tensor that is
// made within the mode but has to outlive it.
//
// What the library keeps from one call to the next (replicas' memory, gradients) is normal in
// either mode, so a model that was first used in inference mode can be trained afterwards.
//
// **Torch counterpart.** c10::InferenceMode; torch.inference_mode. Inference tensors have version
// counters here.
// **Backward.** A graph that was recorded outside may be walked within; its gradients are normal
// tensors.
// **Threads and exceptions.** The mode is the thread's; replicas have their caller's.
// **Example.**
//   const ls::InferenceModeGuard guard;
//   ls::Tensor classes = ls::argmax(model(images), 1);
struct InferenceModeGuard : detail::AutogradStateScope {
  explicit InferenceModeGuard(bool enabled = true)
      : AutogradStateScope(
            {.grad = !enabled, .inference = enabled, .saving = detail::autograd_state().saving}) {}
};

}  // namespace lockstep
