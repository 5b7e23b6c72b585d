// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/autograd/grad_hooks.hpp>
#include <lockstep/autograd/node.hpp>
#include <lockstep/autograd/variable.hpp>
#include <lockstep/error.hpp>
#include <lockstep/never_destroyed.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE void GradientHooks::call(std::vector<Tensor>& gradients, bool retain) const {
  for (const Hook& hook : hooks) {
    Tensor& gradient = gradients[hook.input_nr];
    if (!gradient.defined() || (hook.retains && !retain)) continue;
    Tensor other = hook.function(gradient);
    if (!other.defined()) continue;
    check_gradient("a hook returned a gradient", other, "for one", gradient);
    gradient = std::move(other);
  }
}

inline std::uint64_t next_hook_id() {
  static constinit std::atomic<std::uint64_t> next{0};
  return next.fetch_add(1, std::memory_order_relaxed);
}

LOCKSTEP_INLINE RemovableHandle add_leaf_hook(const std::shared_ptr<TensorImpl>& leaf,
                                              std::function<void(const Tensor&)> function,
                                              std::function<Tensor()> gradient_slot) {
  const std::uint64_t id = next_hook_id();
  const std::lock_guard lock(leaf->mutex);
  auto hooks =
      leaf->hooks ? std::make_shared<LeafHooks>(*leaf->hooks) : std::make_shared<LeafHooks>();
  hooks->after.push_back({id, std::move(function), std::move(gradient_slot)});
  leaf->hooks = std::move(hooks);
  return {leaf, nullptr, id};
}

// Guards the hooks of all nodes. Replicas may add hooks at once to a node that they share, the one
// that made their parameters or inputs, while passes in forward run over it.
struct NodeHooksMutex : std::mutex {};

// Calls `change` with a copy of the node's hooks, and makes the result the node's hooks.
template <class Change>
void change_hooks(Node& node, const Change& change) {
  std::shared_ptr<const GradientHooks> old;  // destroyed without the lock
  const std::lock_guard<std::mutex> lock(never_destroyed<NodeHooksMutex>());
  GradientHooks changed = node.gradient_hooks ? *node.gradient_hooks : GradientHooks();
  change(changed.hooks);
  if (!changed.hooks.empty()) old = std::make_shared<GradientHooks>(std::move(changed));
  old.swap(node.gradient_hooks);
  node.has_gradient_hooks.store(node.gradient_hooks != nullptr, std::memory_order_relaxed);
}

LOCKSTEP_INLINE std::shared_ptr<const GradientHooks> hooks_of(const Node& node) {
  const std::lock_guard<std::mutex> lock(never_destroyed<NodeHooksMutex>());
  return node.gradient_hooks;
}

LOCKSTEP_INLINE RemovableHandle add_gradient_hook(const Tensor& tensor,
                                                  std::function<Tensor(const Tensor&)> function,
                                                  bool retains) {
  check<AutogradError>(tensor.requires_grad(),
                       "cannot register a hook on a tensor that doesn't require gradient");
  check<ValueError>(static_cast<bool>(function), "register_hook: the function is empty");
  const std::shared_ptr<TensorImpl>& impl = tensor.impl();
  const std::uint64_t id = next_hook_id();
  GradientHooks::Hook hook{id, impl->output_nr, std::move(function), retains};
  if (const std::shared_ptr<Node>& node = impl->grad_fn) {
    change_hooks(*node, [&](auto& hooks) {
      const auto is_the_same = [&hook](const auto& other) {
        return hook.retains && other.retains_input(hook.input_nr);
      };
      if (any_of(hooks, is_the_same)) return;
      const auto end =
          retains ? hooks.end() : find_if(hooks, [](const auto& other) { return other.retains; });
      hooks.insert(end, std::move(hook));
    });
    return {nullptr, node, id};
  }
  const std::lock_guard lock(impl->mutex);
  auto hooks =
      impl->hooks ? std::make_shared<LeafHooks>(*impl->hooks) : std::make_shared<LeafHooks>();
  hooks->before.hooks.push_back(std::move(hook));
  impl->hooks = std::move(hooks);
  impl->has_hooks_before.store(true, std::memory_order_relaxed);
  return {impl, nullptr, id};
}

LOCKSTEP_INLINE void move_retained(const std::shared_ptr<Node>& from, std::size_t number,
                                   const Tensor& tensor) {
  std::function<Tensor(const Tensor&)> function;
  change_hooks(*from, [&](auto& hooks) {
    const auto at =
        find_if(hooks, [number](const auto& hook) { return hook.retains_input(number); });
    if (at == hooks.end()) return;
    function = std::move(at->function);
    hooks.erase(at);
  });
  if (function) (void)add_gradient_hook(tensor, std::move(function), true);
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE void RemovableHandle::remove() const {
  const auto is_named = [this](const auto& hook) { return hook.id == id_; };
  if (const std::shared_ptr<Node> node = node_.lock()) {
    detail::change_hooks(*node, [&](auto& hooks) { std::erase_if(hooks, is_named); });
  }
  const std::shared_ptr<detail::TensorImpl> leaf = leaf_.lock();
  if (!leaf) return;
  std::shared_ptr<const detail::LeafHooks> rest;  // takes the old ones, destroyed unlocked
  const std::lock_guard lock(leaf->mutex);
  if (!leaf->hooks) return;
  detail::LeafHooks hooks = *leaf->hooks;
  std::erase_if(hooks.after, is_named);
  std::erase_if(hooks.before.hooks, is_named);
  if (!hooks.after.empty() || !hooks.before.hooks.empty()) {
    rest = std::make_shared<const detail::LeafHooks>(std::move(hooks));
  }
  rest.swap(leaf->hooks);
}

LOCKSTEP_INLINE RemovableHandle
Tensor::register_post_accumulate_grad_hook(std::function<void(const Tensor&)> hook) const {
  check<AutogradError>(requires_grad(),
                       "cannot register a hook on a tensor that doesn't require gradient");
  check<AutogradError>(is_leaf(),
                       "post accumulate grad hooks cannot be registered on non-leaf tensors");
  check<ValueError>(static_cast<bool>(hook),
                    "register_post_accumulate_grad_hook: the function is empty");
  return detail::add_leaf_hook(impl_, std::move(hook));
}

}  // namespace lockstep
