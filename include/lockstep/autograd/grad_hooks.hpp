// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep {

namespace detail {

// The hooks of a leaf. The list is constant once the leaf refers to it, so a pass calls those that
// it found, whatever is added or removed meanwhile.
struct GradHooks {
  struct Hook {
    std::uint64_t id;
    std::function<void(const Tensor&)> function;
    // Returns memory for the leaf's gradient in the current pass, as Node::gradient_slot does. May
    // be empty. A hook with a gradient_slot waits for the gradients, so its function is also called
    // if there is none because the leaf has been frozen since forward.
    std::function<Tensor()> gradient_slot = {};
  };
  std::vector<Hook> hooks;
};

// Adds a hook to a leaf. Checks nothing.
RemovableHandle add_grad_hook(const std::shared_ptr<TensorImpl>& leaf,
                              std::function<void(const Tensor&)> function,
                              std::function<Tensor()> gradient_slot = {});

}  // namespace detail

// Removes a hook. Copies of a handle name the same hook, and the hook stays when all handles are
// gone.
//
// **Torch counterpart.** torch.utils.hooks.RemovableHandle.
class RemovableHandle {
 public:
  RemovableHandle() = default;

  // Removes the hook; a second call does nothing. A pass that runs on another thread at the same
  // time may still call the hook.
  void remove() const;

 private:
  friend RemovableHandle detail::add_grad_hook(const std::shared_ptr<detail::TensorImpl>& leaf,
                                               std::function<void(const Tensor&)> function,
                                               std::function<Tensor()> gradient_slot);

  std::weak_ptr<detail::TensorImpl> leaf_;
  std::uint64_t id_ = 0;
};

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/autograd/impl/grad_hooks.ipp>
#endif
