// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine/backward_pass.hpp>
#include <lockstep/autograd/node.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/autograd/variable.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/autograd_state.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace lockstep {

LOCKSTEP_INLINE Saved::Saved(const Tensor& input) {
  if (detail::autograd_state().discards()) return;
  tensor_ = input;
  remember();
}

LOCKSTEP_INLINE Saved Saved::output(const Tensor& tensor, std::size_t number) {
  Saved saved;
  if (detail::autograd_state().discards()) return saved;
  saved.tensor_ = detail::make_view(tensor);
  saved.is_output_ = true;
  detail::output_saved = true;
  saved.output_nr_ = number;
  saved.remember();
  return saved;
}

LOCKSTEP_INLINE void Saved::remember() {
  if (!tensor_.defined()) return;
  check<AutogradError>(!tensor_.is_inference() || !detail::autograd_state().saving,
                       "Inference tensors cannot be saved for backward. To work around you can "
                       "make a clone to get a normal tensor and use it in autograd: a tensor of "
                       "shape ",
                       tensor_.sizes(), " on ", tensor_.device());
  version_ = tensor_.version();
  replaced_ = tensor_.impl()->replaced;
}

LOCKSTEP_INLINE Tensor Backward::operator()(const Saved& saved) const {
  const Tensor& tensor = saved.tensor_;
  if (!tensor.defined()) return tensor;
  const bool replaced = tensor.impl()->replaced != saved.replaced_;
  if (replaced || tensor.version() != saved.version_) [[unlikely]] {
    const std::string how =
        replaced
            ? std::string(
                  "has been changed by += or its like, or given other memory or another layout")
            : detail::str("is at version ", tensor.version(), "; expected version ",
                          saved.version_);
    detail::fail<AutogradError>("one of the variables needed for the gradient of ", node_->name(),
                                " has been modified by an inplace operation: a tensor of shape ",
                                tensor.sizes(), " on ", tensor.device(), ' ', how);
  }
  std::size_t number = saved.output_nr_;
  if (!saved.is_output_) {
    if (tensor.requires_grad() || !detail::autograd_state().records()) return tensor;
    const std::optional<std::size_t> kept = node_->kept_result(tensor);
    if (!kept) return tensor;
    number = *kept;
  }
  std::shared_ptr<Node> node = node_->self();
  check<AutogradError>(node != nullptr, node_->name(), " has kept an output with Saved::output, ",
                       "but not in its forward, on the thread that ran that");
  Tensor linked = detail::make_view(tensor);
  linked.impl()->grad_fn = std::move(node);
  linked.impl()->output_nr = number;
  linked.impl()->requires_grad = true;
  return linked;
}

LOCKSTEP_INLINE Tensor Backward::gradient_slot(std::size_t i) const {
  detail::BackwardPass* const pass = detail::current_backward_pass;
  if (!pass || !pass->offers_gradient_slots() || !needs(i)) [[likely]]
    return {};
  return node_->next_edges[i].node->gradient_slot();
}

}  // namespace lockstep
