// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine/accumulate_grad.hpp>
#include <lockstep/autograd/grad_hooks.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/autograd/node.hpp>
#include <lockstep/autograd/variable.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/memory_format.hpp>
#include <lockstep/tensor/recycled.hpp>
#include <lockstep/tensor/scalar.hpp>
#include <lockstep/tensor/sparse_sum.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE void check_summable(const Tensor& a, const Tensor& b) {
  check<AutogradError>(a.sizes() == b.sizes() && a.dtype() == b.dtype(),
                       "two gradients of one tensor differ: shape ", a.sizes(), " and ", a.dtype(),
                       " against ", b.sizes(), " and ", b.dtype());
  check<DeviceError>(a.device() == b.device(), "two gradients of one tensor are on ", a.device(),
                     " and ", b.device());
}

LOCKSTEP_INLINE void add_in_place(const Tensor& total, const Tensor& part, Scalar alpha) {
  if (is_half_precision(total.dtype())) {
    const Tensor sum = widened(total);
    add_in_place(sum, widened(part), alpha);
    return copy_into(total, sum);
  }
  if (is_channels_last(total)) {
    return add_in_place(channels_to_back(total), channels_to_back(part), alpha);
  }
  if (!total.is_contiguous()) {
    const Tensor sum = packed(total);
    add_in_place(sum, part, alpha);
    return copy_into(total, sum);
  }
  const Stream stream = current_stream(total.device());
  const Tensor from = packed(part);
  dispatch_numeric(total.dtype(), "add_", [&]<class T>(T) {
    launch(stream, static_cast<std::size_t>(total.numel()),
           AddInPlaceKernel<T>{output<T>(total, stream), input<T>(from), alpha.as<T>()});
  });
}

LOCKSTEP_INLINE Tensor AccumulateGrad::gradient_slot() {
  if (is_grad_enabled() || !variable_.requires_grad()) return {};
  if (current_stream(variable_.device()) != stream()) return {};
  std::shared_ptr<const LeafHooks> hooks;
  {
    const std::lock_guard lock(variable_.impl()->mutex);
    if (variable_.impl()->grad.defined()) return {};
    hooks = variable_.impl()->hooks;
  }
  if (!hooks) return {};
  for (const LeafHooks::Hook& hook : hooks->after) {
    Tensor slot = hook.gradient_slot ? hook.gradient_slot() : Tensor();
    if (!slot.defined()) continue;
    const std::lock_guard lock(variable_.impl()->mutex);
    return gradient_slot_ = std::move(slot);
  }
  return {};
}

LOCKSTEP_INLINE void AccumulateGrad::receive(std::vector<Tensor>& gradients) const {
  TensorImpl& leaf = *variable_.impl();
  if (leaf.has_hooks_before.load(std::memory_order_relaxed)) [[unlikely]] {
    std::shared_ptr<const LeafHooks> hooks;
    {
      const std::lock_guard lock(leaf.mutex);
      hooks = leaf.hooks;
    }
    if (hooks) hooks->before.call(gradients);
  }
  const Tensor& gradient = gradients[0];
  check<AutogradError>(
      gradient.sizes() == variable_.sizes() && gradient.dtype() == variable_.dtype(),
      "a gradient of shape ", gradient.sizes(), " and ", gradient.dtype(),
      " came for a leaf of shape ", variable_.sizes(), " and ", variable_.dtype());
  check<DeviceError>(gradient.device() == variable_.device(), "a gradient on ", gradient.device(),
                     " came for a leaf on ", variable_.device());
}

LOCKSTEP_INLINE void AccumulateGrad::apply(std::vector<Tensor>& gradients) {
  receive(gradients);
  Tensor& gradient = gradients[0];
  const bool frozen = !variable_.requires_grad();
  if (const std::shared_ptr<const LeafHooks> hooks = accumulate(gradient, frozen)) {
    for (const LeafHooks::Hook& hook : hooks->after) {
      if (!frozen || hook.gradient_slot) hook.function(variable_);
    }
  }
  gradients.clear();
}

LOCKSTEP_INLINE Tensor add_to_grad(const Tensor& variable, const Tensor& gradient) {
  while (true) {
    const Tensor before = variable.grad();  // destroyed without the lock: a deleter may take it
    // Never the gradient itself, which other tensors may share.
    Tensor sum = sum_gradients(
        before.defined() ? before : zeros(gradient.sizes(), gradient.options()), gradient);
    const std::lock_guard lock(variable.impl()->mutex);
    Tensor& grad = variable.impl()->grad;
    if (grad.is_same(before)) return grad = std::move(sum);
    // Another pass has added to it meanwhile: try again.
  }
}

LOCKSTEP_INLINE std::shared_ptr<const LeafHooks> AccumulateGrad::accumulate(Tensor& gradient,
                                                                            bool frozen) {
  // The former `grad`, destroyed without the lock: it may lead to the user's memory, whose deleter
  // may take the lock.
  Tensor replaced;
  std::unique_lock lock(variable_.impl()->mutex);
  Tensor& total = variable_.impl()->grad;
  const auto replace = [&](Tensor sum) { replaced = std::exchange(total, std::move(sum)); };
  const auto own_copy = [&](const Tensor& other) {
    Tensor copy = empty_in_layout_of(variable_);
    copy_into(copy, other);
    return copy;
  };
  const Tensor slot = std::exchange(gradient_slot_, {});
  if (frozen) return variable_.impl()->hooks;
  if (total.defined()) check_summable(total, gradient);  // set_data may have changed the leaf
  if (gradient.is_sparse()) [[unlikely]] {
    if (!total.defined() || total.is_sparse()) {
      if (total.defined()) {
        replace(sum_sparse(total, gradient));
      } else if (is_sole_owner_of_sparse(gradient)) {
        total = std::move(gradient);
      } else {
        total = concatenated({gradient}, gradient.device());
      }
      gradient = {};  // its memory is not held through the hooks
      return variable_.impl()->hooks;
    }
    gradient = gradient.to_dense();
  } else if (total.defined() && total.is_sparse()) [[unlikely]] {
    replace(total.to_dense());
  }
  const auto may_be_taken = [&] {
    const bool images = is_channels_last(variable_);
    const bool fits = images ? is_channels_last(gradient) : gradient.is_contiguous();
    // Not if an operation or a hook has recorded it itself, or made it in inference mode.
    const bool plain = !gradient.is_inference() && (is_grad_enabled() || !gradient.requires_grad());
    return gradient.is_same(slot) || (fits && plain && is_sole_owner(gradient));
  };
  if (!total.defined() && may_be_taken()) {
    total = std::move(gradient);
  } else if (is_grad_enabled()) {
    // Unlocked, since a recorded operation locks the leaves that it gets, perhaps this one.
    lock.unlock();
    (void)add_to_grad(variable_, gradient);
    lock.lock();
  } else if (!total.defined()) {
    total = own_copy(gradient);
  } else {
    // `total` may be an expanded tensor, which cannot be added to in place.
    if (repeats_elements(total)) replace(own_copy(total));
    add_in_place(total, gradient);
  }
  return variable_.impl()->hooks;
}

// The AccumulateGrad of a leaf: the same one for as long as a graph holds it.
inline std::shared_ptr<Node> accumulator_of(const Tensor& leaf) {
  TensorImpl& impl = *leaf.impl();
  const std::lock_guard lock(impl.mutex);
  std::shared_ptr<Node> accumulator = impl.accumulator.lock();
  if (!accumulator) {
    accumulator = make_recycled<AccumulateGrad>(leaf);
    impl.accumulator = accumulator;
  }
  return accumulator;
}

LOCKSTEP_INLINE Edge gradient_edge(const Tensor& tensor) {
  if (!tensor.defined() || !tensor.requires_grad()) return {};
  const TensorImpl& impl = *tensor.impl();
  if (impl.grad_fn) return {impl.grad_fn, impl.output_nr};
  return {accumulator_of(tensor), 0};
}

}  // namespace lockstep::detail
