// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/grad_hooks.hpp>
#include <lockstep/autograd/variable.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep {

LOCKSTEP_INLINE void RemovableHandle::remove() const {
  const std::shared_ptr<detail::TensorImpl> leaf = leaf_.lock();
  if (!leaf) return;
  std::shared_ptr<const detail::GradHooks> rest;  // takes the old ones, destroyed unlocked
  const std::lock_guard lock(leaf->mutex);
  if (!leaf->hooks) return;
  std::vector<detail::GradHooks::Hook> hooks = leaf->hooks->hooks;
  std::erase_if(hooks, [this](const auto& hook) { return hook.id == id_; });
  if (!hooks.empty()) {
    rest = std::make_shared<const detail::GradHooks>(detail::GradHooks{std::move(hooks)});
  }
  rest.swap(leaf->hooks);
}

}  // namespace lockstep

namespace lockstep::detail {

LOCKSTEP_INLINE RemovableHandle add_grad_hook(const std::shared_ptr<TensorImpl>& leaf,
                                              std::function<void(const Tensor&)> function,
                                              std::function<Tensor()> gradient_slot) {
  static constinit std::atomic<std::uint64_t> last_id{0};
  RemovableHandle handle;
  handle.leaf_ = leaf;
  handle.id_ = last_id.fetch_add(1, std::memory_order_relaxed) + 1;
  const std::lock_guard lock(leaf->mutex);
  auto hooks =
      leaf->hooks ? std::make_shared<GradHooks>(*leaf->hooks) : std::make_shared<GradHooks>();
  hooks->hooks.push_back({handle.id_, std::move(function), std::move(gradient_slot)});
  leaf->hooks = std::move(hooks);
  return handle;
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE RemovableHandle
Tensor::register_post_accumulate_grad_hook(std::function<void(const Tensor&)> hook) const {
  check<AutogradError>(requires_grad(),
                       "cannot register a hook on a tensor that doesn't require gradient");
  check<AutogradError>(is_leaf(),
                       "post accumulate grad hooks cannot be registered on non-leaf tensors");
  check<ValueError>(static_cast<bool>(hook),
                    "register_post_accumulate_grad_hook: the function is empty");
  return detail::add_grad_hook(impl_, std::move(hook));
}

}  // namespace lockstep
