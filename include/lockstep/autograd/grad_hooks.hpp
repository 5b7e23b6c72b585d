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

// The hooks of a leaf. Never changed once the leaf refers to it: a pass calls those that it found.
struct GradHooks {
  struct Hook {
    std::uint64_t id;
    std::function<void(const Tensor&)> function;
    // Memory for the leaf's gradient in the current pass, as Node::place_for_gradient has it. May
    // be empty. Whoever has places waits for the gradients: the function is called as well if there
    // is none, since the leaf has been frozen after forward.
    std::function<Tensor()> place = {};
  };
  std::vector<Hook> hooks;
};

// A hook of a leaf, whatever that is.
RemovableHandle add_grad_hook(const std::shared_ptr<TensorImpl>& leaf,
                              std::function<void(const Tensor&)> function,
                              std::function<Tensor()> place = {});

}  // namespace detail

// Takes back a hook. A value: copies name the same hook, which stays when all handles have gone.
//
// **Torch counterpart.** torch.utils.hooks.RemovableHandle.
class RemovableHandle {
 public:
  RemovableHandle() = default;

  // Idempotent. A pass that is on the way to the hook on another thread may still call it.
  void remove() const;

 private:
  friend RemovableHandle detail::add_grad_hook(const std::shared_ptr<detail::TensorImpl>& leaf,
                                               std::function<void(const Tensor&)> function,
                                               std::function<Tensor()> place);

  std::weak_ptr<detail::TensorImpl> leaf_;
  std::uint64_t id_ = 0;
};

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/autograd/grad_hooks.ipp>
#endif
