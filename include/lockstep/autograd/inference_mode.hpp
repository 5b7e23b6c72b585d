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
// Nothing is recorded, and every new tensor is an inference tensor for good
// (`Tensor::is_inference`). Outside the mode it can be read and computed with, but changing it in
// place, requires_grad_ and saving it for backward are AutogradErrors; what is computed from it,
// such as its `clone()`, is a normal tensor. A view is an inference tensor if its base is. Normal
// tensors may be changed in the mode.
//
// With `enabled` false, the guard leaves inference mode and turns recording on: for a tensor that
// must outlive the mode.
//
// A model first used in inference mode can be trained later: whatever the library keeps between
// calls (replicas' memory, gradients) is normal in either mode.
//
// **Torch counterpart.** c10::InferenceMode; torch.inference_mode. Here inference tensors have
// version counters.
// **Backward.** Backward through a graph recorded outside works; its gradients are normal tensors.
// **Threads and exceptions.** The mode belongs to the thread; replicas have their caller's.
// **Example.**
//   const ls::InferenceModeGuard guard;
//   ls::Tensor classes = ls::argmax(model(images), 1);
struct InferenceModeGuard : detail::AutogradStateScope {
  [[nodiscard]] explicit InferenceModeGuard(bool enabled = true)
      : AutogradStateScope(
            {.grad = !enabled, .inference = enabled, .saving = detail::autograd_state().saving}) {}
};

}  // namespace lockstep
