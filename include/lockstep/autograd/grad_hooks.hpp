// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

namespace detail {

// Hooks on gradients before these are used, of a node's inputs or of a leaf: first those of
// Tensor::register_hook, then those of retain_grad. A list never changes once something refers to
// it, so a pass calls the hooks that it found, whatever is added or removed meanwhile.
struct GradientHooks {
  struct Hook {
    std::uint64_t id;
    std::size_t input_nr;
    std::function<Tensor(const Tensor&)> function;
    bool retains = false;

    bool retains_input(std::size_t number) const { return retains && input_nr == number; }
  };
  std::vector<Hook> hooks;

  // Calls the hooks in order with their gradients, if defined, and replaces these by what they
  // return. Skips those of retain_grad unless `retain`.
  void call(std::vector<Tensor>& gradients, bool retain = true) const;
};

// The hooks of a leaf. A list never changes, as above.
struct LeafHooks {
  struct Hook {
    std::uint64_t id;
    std::function<void(const Tensor&)> function;
    // Returns memory for the leaf's gradient in the current pass, as Node::gradient_slot does. May
    // be empty. A hook that has it expects every gradient, so its function is called even if there
    // is none because the leaf was frozen after forward.
    std::function<Tensor()> gradient_slot = {};
  };
  std::vector<Hook> after;  // called once the gradient has been added into `grad`
  GradientHooks before;     // called before, on the gradient
};

// Adds a hook to a leaf's `after`. Checks nothing.
RemovableHandle add_leaf_hook(const std::shared_ptr<TensorImpl>& leaf,
                              std::function<void(const Tensor&)> function,
                              std::function<Tensor()> gradient_slot = {});

// Does what Tensor::register_hook does, or Tensor::retain_grad, whose second hook is ignored.
RemovableHandle add_gradient_hook(const Tensor& tensor,
                                  std::function<Tensor(const Tensor&)> function,
                                  bool retains = false);

// The current hooks of a node; null if there are none.
std::shared_ptr<const GradientHooks> hooks_of(const Node& node);

// Moves what retain_grad registered for an output of `from` to the tensor's new node.
void move_retained(const std::shared_ptr<Node>& from, std::size_t number, const Tensor& tensor);

}  // namespace detail

// Removes a hook. Copies of a handle name the same hook. The hook stays when all handles are gone.
//
// **Torch counterpart.** torch.utils.hooks.RemovableHandle.
class RemovableHandle {
 public:
  RemovableHandle() = default;
  // For a hook of a leaf, or of `node`, which made a tensor.
  RemovableHandle(const std::shared_ptr<detail::TensorImpl>& leaf,
                  const std::shared_ptr<Node>& node, std::uint64_t id)
      : leaf_(leaf), node_(node), id_(id) {}

  // Removes the hook; a second call does nothing. A pass on another thread may still call a leaf's
  // hook meanwhile. For a non-leaf, do not call it while another thread, such as another device's,
  // runs a pass over that tensor.
  void remove() const;

 private:
  std::weak_ptr<detail::TensorImpl> leaf_;
  std::weak_ptr<Node> node_;
  std::uint64_t id_ = 0;
};

template <class Hook>
RemovableHandle Tensor::register_hook(Hook hook) const {
  if constexpr (std::is_void_v<std::invoke_result_t<Hook&, const Tensor&>>) {
    const std::function<void(const Tensor&)> look(std::move(hook));
    if (!look) return detail::add_gradient_hook(*this, {});
    return detail::add_gradient_hook(*this, [look](const Tensor& gradient) {
      look(gradient);
      return Tensor();
    });
  } else {
    return detail::add_gradient_hook(*this, std::move(hook));
  }
}

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/autograd/impl/grad_hooks.ipp>
#endif
