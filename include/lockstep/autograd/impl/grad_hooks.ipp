// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/autograd/grad_hooks.hpp>
#include <lockstep/autograd/node.hpp>
#include <lockstep/autograd/variable.hpp>
#include <lockstep/error.hpp>
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
    auto hooks = node->gradient_hooks ? std::make_shared<GradientHooks>(*node->gradient_hooks)
                                      : std::make_shared<GradientHooks>();
    const auto end = retains
                         ? hooks->hooks.end()
                         : find_if(hooks->hooks, [](const auto& other) { return other.retains; });
    hooks->hooks.insert(end, std::move(hook));
    node->gradient_hooks = std::move(hooks);
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
  if (!from->gradient_hooks) return;
  auto rest = std::make_shared<GradientHooks>(*from->gradient_hooks);
  const auto at =
      find_if(rest->hooks, [number](const auto& hook) { return hook.retains_input(number); });
  if (at == rest->hooks.end()) return;
  (void)add_gradient_hook(tensor, std::move(at->function), true);
  rest->hooks.erase(at);
  from->gradient_hooks = rest->hooks.empty() ? nullptr : std::move(rest);
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE void RemovableHandle::remove() const {
  const auto is_named = [this](const auto& hook) { return hook.id == id_; };
  if (const std::shared_ptr<Node> node = node_.lock(); node && node->gradient_hooks) {
    auto hooks = std::make_shared<detail::GradientHooks>(*node->gradient_hooks);
    std::erase_if(hooks->hooks, is_named);
    node->gradient_hooks = hooks->hooks.empty() ? nullptr : std::move(hooks);
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
