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

// Hooks on gradients before they are used, of a node's inputs or of a leaf: those of
// Tensor::register_hook, then those of retain_grad. A list is constant once something refers to it,
// so a pass calls those that it found, whatever is added or removed meanwhile.
struct GradientHooks {
  struct Hook {
    std::uint64_t id;
    std::size_t input_nr;
    std::function<Tensor(const Tensor&)> function;
    bool retains = false;

    bool retains_input(std::size_t number) const { return retains && input_nr == number; }
  };
  std::vector<Hook> hooks;

  // Calls them with those of the gradients that are defined, in their order, and puts what they
  // return in the place of what they got. Those of retain_grad are left out unless `retain`.
  void call(std::vector<Tensor>& gradients, bool retain = true) const;
};

// The hooks of a leaf; constant as those.
struct LeafHooks {
  struct Hook {
    std::uint64_t id;
    std::function<void(const Tensor&)> function;
    // Returns memory for the leaf's gradient in the current pass, as Node::gradient_slot does. May
    // be empty. A hook with a gradient_slot waits for the gradients, so its function is also called
    // if there is none because the leaf has been frozen since forward.
    std::function<Tensor()> gradient_slot = {};
  };
  std::vector<Hook> after;  // called once the gradient has been added into `grad`
  GradientHooks before;     // called before, on the gradient
};

// Adds a hook to those that a leaf has `after`. Checks nothing.
RemovableHandle add_leaf_hook(const std::shared_ptr<TensorImpl>& leaf,
                              std::function<void(const Tensor&)> function,
                              std::function<Tensor()> gradient_slot = {});

// What Tensor::register_hook does, and Tensor::retain_grad, whose second hook is left out.
RemovableHandle add_gradient_hook(const Tensor& tensor,
                                  std::function<Tensor(const Tensor&)> function,
                                  bool retains = false);

// The hooks of a node as they are now; null for none.
std::shared_ptr<const GradientHooks> hooks_of(const Node& node);

// Has what retain_grad registered for an output of `from` follow the tensor to its new node.
void move_retained(const std::shared_ptr<Node>& from, std::size_t number, const Tensor& tensor);

}  // namespace detail

// Removes a hook. Copies of a handle name the same hook, and the hook stays when all handles are
// gone.
//
// **Torch counterpart.** torch.utils.hooks.RemovableHandle.
class RemovableHandle {
 public:
  RemovableHandle() = default;
  // Of a leaf's hook, or of one of `node`, which made a tensor.
  RemovableHandle(const std::shared_ptr<detail::TensorImpl>& leaf,
                  const std::shared_ptr<Node>& node, std::uint64_t id)
      : leaf_(leaf), node_(node), id_(id) {}

  // Removes the hook; a second call does nothing. A pass that runs on another thread at the same
  // time may still call a leaf's hook. For a tensor that is no leaf it must not be called while
  // another thread works for a pass over that tensor, so not by a hook of another device's either.
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
