// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/inference_mode.hpp>
#include <lockstep/autograd/node.hpp>
#include <lockstep/autograd/variable.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <memory>
#include <mutex>

namespace lockstep {

LOCKSTEP_INLINE bool Tensor::requires_grad() const { return get().requires_grad; }

LOCKSTEP_INLINE bool Tensor::is_leaf() const { return !get().grad_fn; }

LOCKSTEP_INLINE const std::shared_ptr<Node>& Tensor::grad_fn() const { return get().grad_fn; }

LOCKSTEP_INLINE Tensor Tensor::grad() const {
  (void)get();
  const std::lock_guard lock(impl_->mutex);
  return impl_->grad;
}

LOCKSTEP_INLINE void Tensor::set_grad(Tensor grad) const {
  (void)get();
  check<ValueError>(
      !grad.is_same(*this),
      "set_grad: a tensor cannot be its own gradient, which would keep its memory for "
      "ever: give its clone() or detach()");
  if (grad.defined()) detail::check_gradient("set_grad: a gradient", grad, "for a tensor", *this);
  const std::lock_guard lock(impl_->mutex);
  impl_->grad.impl_.swap(grad.impl_);
}

// The same data without a place in the graph; the version stays shared. A sparse tensor has no such
// place.
LOCKSTEP_INLINE Tensor Tensor::detach() const {
  if (get().sparse) [[unlikely]]
    return *this;
  return detail::make_view(*this);
}

}  // namespace lockstep

namespace lockstep::detail {

LOCKSTEP_INLINE void check_inplace(const Tensor& tensor, const char* operation) {
  check_defined(operation, "the tensor", tensor);
  check<AutogradError>(!tensor.requires_grad() || !autograd_state().records(), operation,
                       " on a tensor that requires grad is not recorded: do it under NoGradGuard,"
                       " or out of place");
}

LOCKSTEP_INLINE void check_not_inference(const Tensor& tensor, const char* operation) {
  check<AutogradError>(!tensor.is_inference() || is_inference_mode_enabled(), operation,
                       ": Inplace update to inference tensor outside InferenceMode is not allowed: "
                       "a tensor of shape ",
                       tensor.sizes(), " on ", tensor.device(),
                       "; clone() it to get a normal tensor to change");
}

LOCKSTEP_INLINE void check_gradient(const char* came, const Tensor& gradient, const char* whose,
                                    const Tensor& tensor) {
  check<ShapeError>(gradient.sizes() == tensor.sizes(), came, " of shape ", gradient.sizes(), ' ',
                    whose, " of shape ", tensor.sizes());
  check<DtypeError>(gradient.dtype() == tensor.dtype(), came, " of ", gradient.dtype(), ' ', whose,
                    " of ", tensor.dtype());
  check<DeviceError>(gradient.device() == tensor.device(), came, " on ", gradient.device(), ' ',
                     whose, " on ", tensor.device());
}

LOCKSTEP_INLINE bool is_sole_owner(const Tensor& tensor) {
  const auto& impl = tensor.impl();
  return impl.use_count() == 1 && impl->storage.use_count() == 1;
}

}  // namespace lockstep::detail
