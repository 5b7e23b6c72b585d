// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine/accumulate_grad.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/variable.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/function_ref.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/elementwise.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/kernels/elementwise_kernels.hpp>
#include <lockstep/ops/layout.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/fill.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/memory_format.hpp>
#include <lockstep/tensor/scalar.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <memory>
#include <utility>

namespace lockstep::detail {

LOCKSTEP_INLINE void check_changeable(const Tensor& tensor, const char* operation) {
  check_inplace(tensor, operation);
  check_not_inference(tensor, operation);
  check<ValueError>(!tensor.is_sparse(), operation,
                    ": expected a dense tensor, got a sparse one of shape ", tensor.sizes(),
                    ": change its coalesce().values(), or its to_dense()");
  check<ValueError>(!repeats_elements(tensor), operation,
                    ": more than one element of the tensor of shape ", tensor.sizes(),
                    " is the same element in memory: make it contiguous first");
}

// Throws if the source of an in-place change would need a gradient.
inline void check_source(const Tensor& source, const char* operation) {
  check_defined(operation, "the other tensor", source);
  check<AutogradError>(!source.requires_grad() || !autograd_state().records(), operation,
                       " by a tensor that requires grad is not recorded: do it under NoGradGuard, "
                       "or out of place: parts are put together by cat and stack");
}

// `source` broadcast to `shape`; unrecorded.
inline Tensor stretched(const Tensor& source, const Shape& shape, const char* operation) {
  if (source.sizes() == shape) return source;
  check<ShapeError>(source.sizes().size() <= shape.size() &&
                        broadcast_shapes(operation, shape, source.sizes()) == shape,
                    operation, ": a tensor of shape ", source.sizes(),
                    " does not fit into one of shape ", shape);
  return make_view(source, shape, broadcast_strides(source, shape), source.impl()->offset);
}

// Copies `changed` back to the tensor, unless it is the tensor itself.
inline void put_back(const Tensor& tensor, const Tensor& changed) {
  if (!changed.is_same(tensor)) copy_into(tensor, changed);
}

// Replaces each element by F of itself and the number.
template <template <class> class F, bool kFloatingAlone = false>
void change_each(const char* operation, const Tensor& tensor, Scalar number) {
  check_changeable(tensor, operation);
  const PackedWide wide(tensor);
  const Tensor& data = *wide;
  const auto change = [&]<class T>(T) {
    using Kernel = UnaryKernel<T, T, BindRight<T, F<T>>>;
    const Stream stream = current_stream(data.device());
    const T operand = scalar<T>(operation, number);
    launch(stream, static_cast<std::size_t>(data.numel()),
           Kernel{input<T>(data), output<T>(data, stream), {{}, operand}});
  };
  if constexpr (kFloatingAlone) {
    dispatch_floating(data.dtype(), operation, change);
  } else {
    dispatch_numeric(data.dtype(), operation, change);
  }
  put_back(tensor, data);
}

inline void check_update(const char* operation, const Tensor& tensor, const Tensor& after) {
  check<ShapeError>(after.sizes() == tensor.sizes(), operation, ": a result of shape ",
                    after.sizes(), " does not fit into a tensor of shape ", tensor.sizes());
}

// Replaces the tensor by the recorded result of `change`.
inline void record_update(const char* operation, const Tensor& tensor,
                          FunctionRef<Tensor(const Tensor&)> change) {
  TensorImpl& impl = *tensor.impl();
  check<AutogradError>(!impl.requires_grad || impl.grad_fn, operation,
                       ": a leaf that requires grad is being changed in place: do it under "
                       "NoGradGuard, or out of place");
  check_not_inference(tensor, operation);
  check<AutogradError>(impl.storage.use_count() == 1, operation,
                       ": another tensor shares the memory of the one of shape ", tensor.sizes(),
                       ", such as a view or what an operation has saved for backward: do it out of "
                       "place");
  const Tensor before = make_view(tensor);
  before.impl()->grad_fn = impl.grad_fn;
  before.impl()->output_nr = impl.output_nr;
  before.impl()->requires_grad = impl.requires_grad;
  const Tensor after = change(before).to(tensor.dtype());
  check_update(operation, tensor, after);
  const std::shared_ptr<Node> old = std::move(impl.grad_fn);
  const std::size_t number = impl.output_nr;
  impl.grad_fn = nullptr;
  tensor.set_data(after);
  impl.grad_fn = after.grad_fn();
  impl.output_nr = after.impl()->output_nr;
  impl.requires_grad = true;
  if (old) move_retained(old, number, tensor);
}

inline const Tensor& update(const char* operation, const Tensor& tensor, bool recorded,
                            FunctionRef<Tensor(const Tensor&)> change) {
  check_defined(operation, "the tensor", tensor);
  if (recorded || is_recorded(tensor)) {
    record_update(operation, tensor, change);
  } else {
    check_changeable(tensor, operation);
    const Tensor after = change(tensor);
    check_update(operation, tensor, after);
    copy_into(tensor, after);
  }
  return tensor;
}

// The same by another tensor. If that is the tensor itself, `change` gets its previous variable: an
// operation that saved the tensor, which becomes the result, would be owned by what it saves.
inline const Tensor& update(const char* operation, const Tensor& tensor, const Tensor& other,
                            FunctionRef<Tensor(const Tensor&, const Tensor&)> change) {
  return update(operation, tensor, is_recorded(other), [&](const Tensor& before) {
    return change(before, other.is_same(tensor) ? before : other);
  });
}

}  // namespace lockstep::detail

namespace lockstep {

// Sets every element to `value`.
LOCKSTEP_INLINE const Tensor& Tensor::fill_(Scalar value) const {
  detail::check_changeable(*this, "fill_");
  if (is_contiguous()) {
    detail::fill(*this, value, "fill_");
  } else {
    const Tensor one = empty({}, options());
    detail::fill(one, value, "fill_");
    detail::copy_into(*this, detail::stretched(one, sizes(), "fill_"));
  }
  return *this;
}

LOCKSTEP_INLINE const Tensor& Tensor::zero_() const {
  detail::check_changeable(*this, "zero_");
  return fill_(0);
}

// Copies the elements of `source`, broadcast to this shape and converted to this dtype and device.
LOCKSTEP_INLINE const Tensor& Tensor::copy_(const Tensor& source) const {
  detail::check_changeable(*this, "copy_");
  detail::check_source(source, "copy_");
  if (is_same(source)) return *this;
  detail::copy_into(*this, detail::stretched(source, sizes(), "copy_"));
  return *this;
}

// Adds alpha · other, broadcast to this shape.
LOCKSTEP_INLINE const Tensor& Tensor::add_(const Tensor& other, Scalar alpha) const {
  detail::check_changeable(*this, "add_");
  detail::check_source(other, "add_");
  detail::check_same_kind("add_", "the tensor", *this, "the one to add", other);
  if (!detail::is_half_precision(dtype())) {
    dispatch_numeric(dtype(), "add_", [&]<class T>(T) { (void)detail::scalar<T>("add_", alpha); });
  }
  const Tensor part = detail::copy_if_overlapping(*this, detail::stretched(other, sizes(), "add_"));
  const detail::Packed total(*this);
  detail::add_in_place(*total, part, alpha);
  detail::put_back(*this, *total);
  return *this;
}

LOCKSTEP_INLINE const Tensor& Tensor::add_(Scalar number) const {
  detail::change_each<detail::Plus>("add_", *this, number);
  return *this;
}

LOCKSTEP_INLINE const Tensor& Tensor::sub_(Scalar number) const {
  detail::change_each<detail::Minus>("sub_", *this, number);
  return *this;
}

LOCKSTEP_INLINE const Tensor& Tensor::mul_(Scalar factor) const {
  detail::change_each<detail::Times>("mul_", *this, factor);
  return *this;
}

LOCKSTEP_INLINE const Tensor& Tensor::div_(Scalar divisor) const {
  detail::change_each<detail::Over, true>("div_", *this, divisor);
  return *this;
}

LOCKSTEP_INLINE const Tensor& operator+=(const Tensor& a, const Tensor& b) {
  return detail::update("+=", a, b, [](const Tensor& x, const Tensor& y) { return x + y; });
}

LOCKSTEP_INLINE const Tensor& operator+=(const Tensor& a, Scalar b) {
  return detail::update("+=", a, false, [&](const Tensor& x) { return x + b; });
}

LOCKSTEP_INLINE const Tensor& operator-=(const Tensor& a, const Tensor& b) {
  return detail::update("-=", a, b, [](const Tensor& x, const Tensor& y) { return x - y; });
}

LOCKSTEP_INLINE const Tensor& operator-=(const Tensor& a, Scalar b) {
  return detail::update("-=", a, false, [&](const Tensor& x) { return x - b; });
}

LOCKSTEP_INLINE const Tensor& operator*=(const Tensor& a, const Tensor& b) {
  return detail::update("*=", a, b, [](const Tensor& x, const Tensor& y) { return x * y; });
}

LOCKSTEP_INLINE const Tensor& operator*=(const Tensor& a, Scalar b) {
  return detail::update("*=", a, false, [&](const Tensor& x) { return x * b; });
}

LOCKSTEP_INLINE const Tensor& operator/=(const Tensor& a, const Tensor& b) {
  return detail::update("/=", a, b, [](const Tensor& x, const Tensor& y) { return x / y; });
}

LOCKSTEP_INLINE const Tensor& operator/=(const Tensor& a, double b) {
  return detail::update("/=", a, false, [&](const Tensor& x) { return x / b; });
}

}  // namespace lockstep
