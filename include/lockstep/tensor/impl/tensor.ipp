// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/tensor/autograd_state.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/recycled.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace lockstep::detail {

LOCKSTEP_INLINE void* TensorImpl::data() const {
  auto* const begin = static_cast<std::byte*>(storage->data());
  if (begin == nullptr) return nullptr;
  return begin + static_cast<std::size_t>(offset) * element_size(dtype);
}

LOCKSTEP_INLINE Tensor make_view(const Tensor& base, const Shape& shape, const Shape& strides,
                                 std::int64_t offset) {
  auto impl = make_recycled<TensorImpl>();
  impl->storage = base.impl()->storage;
  impl->version = base.impl()->version;
  impl->offset = offset;
  impl->shape = shape;
  impl->strides = strides;
  impl->dtype = base.dtype();
  impl->numel = lockstep::numel(shape);
  impl->contiguous = impl->numel == 0 || strides_are_contiguous(shape, strides);
  impl->inference = base.impl()->inference;
  return Tensor(std::move(impl));
}

LOCKSTEP_INLINE bool same_memory(const Tensor& a, const Tensor& b) {
  const Elements& one = *a.impl();
  const Elements& other = *b.impl();
  return one.storage == other.storage && one.offset == other.offset && one.dtype == other.dtype &&
         one.shape == other.shape && one.strides == other.strides;
}

LOCKSTEP_INLINE Tensor part_of(const Tensor& x, std::size_t dim, std::int64_t start,
                               std::int64_t length) {
  Shape sizes = x.sizes();
  sizes[dim] = length;
  // The offset of a part without elements may overflow.
  const std::int64_t ahead = numel(sizes) > 0 ? start * x.strides()[dim] : 0;
  return make_view(x, sizes, x.strides(), x.impl()->offset + ahead);
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE const detail::TensorImpl& Tensor::get() const {
  if (impl_ == nullptr) [[unlikely]]
    detail::fail_undefined();
  return *impl_;
}

LOCKSTEP_INLINE const detail::TensorImpl& Tensor::shaped() const {
  const detail::TensorImpl& impl = get();
  if (impl.uninitialized) [[unlikely]]
    detail::fail_uninitialized(impl);
  return impl;
}

LOCKSTEP_INLINE const detail::TensorImpl& Tensor::strided() const {
  const detail::TensorImpl& impl = shaped();
  if (impl.sparse) [[unlikely]]
    detail::fail_sparse(impl);
  return impl;
}

LOCKSTEP_INLINE void detail::check_defined(const char* operation, const char* name,
                                           const Tensor& tensor) {
  check<ValueError>(tensor.defined(), operation, ": expected ", name,
                    " to be a tensor, got an undefined one: made without a value, or moved from");
}

LOCKSTEP_INLINE void detail::fail_uninitialized(const TensorImpl& impl) {
  fail<ModuleError>("an uninitialized parameter of ", impl.dtype, " on ", impl.storage->device(),
                    " has no shape and no elements yet: call forward to initialize the module's "
                    "parameters before anything else uses them");
}

LOCKSTEP_INLINE void detail::fail_sparse(const TensorImpl& impl) {
  fail<OperandError>("expected a dense tensor, got a sparse one of shape ", impl.shape, " and ",
                     impl.dtype, " on ", impl.storage->device(),
                     ": use to_dense(), or coalesce() and then indices() and values()");
}

LOCKSTEP_INLINE std::int64_t Tensor::size(std::int64_t dim) const {
  check<IndexError>(this->dim() > 0, "size(", dim, "): the tensor has no dimensions");
  return sizes()[wrap_dim(dim, sizes().size())];
}

LOCKSTEP_INLINE void Tensor::record_stream(const Stream& stream) const {
  get().storage->record_stream(stream);
  if (impl_->sparse) [[unlikely]]
    static_cast<const detail::SparseImpl&>(*impl_).indices.record_stream(stream);
}

LOCKSTEP_INLINE bool Tensor::is_sparse() const { return get().sparse; }

LOCKSTEP_INLINE std::uint64_t Tensor::version() const {
  return get().version->value.load(std::memory_order_relaxed);
}

LOCKSTEP_INLINE void Tensor::mark_changed() const {
  get().version->value.fetch_add(1, std::memory_order_relaxed);
}

LOCKSTEP_INLINE void detail::order_write(const Tensor& tensor, const Stream& stream) {
  tensor.impl()->storage->order_write(stream);
  tensor.mark_changed();
}

LOCKSTEP_INLINE const void* detail::read_on_host(const Tensor& tensor, Dtype dtype) {
  check<DeviceError>(tensor.device().is_cpu(), "the data of a tensor on ", tensor.device(),
                     " cannot be read by the host: copy it to cpu first");
  check<DtypeError>(tensor.dtype() == dtype, "data pointer of ", dtype, " asked of a tensor of ",
                    tensor.dtype(),
                    ": name its own type, as in to_vector<float> for f32, or "
                    "convert it first, .to(Dtype::",
                    dtype, ")");
  current_stream(tensor.device()).synchronize();
  (void)tensor.strides();  // throws if the tensor is sparse
  return tensor.impl()->data();
}

LOCKSTEP_INLINE void* detail::write_on_host(const Tensor& tensor, Dtype dtype) {
  (void)read_on_host(tensor, dtype);
  const Stream stream = current_stream(tensor.device());
  order_write(tensor, stream);
  stream.synchronize();
  return tensor.impl()->data();
}

LOCKSTEP_INLINE void Tensor::set_data(const Tensor& other) const {
  const detail::TensorImpl& from = other.get();
  check<ValueError>(impl_ != nullptr, "set_data: the tensor is undefined");
  check<AutogradError>(!impl_->grad_fn,
                       "set_data: the tensor is the result of a recorded operation");
  check<ValueError>(!impl_->sparse && !from.sparse, "set_data: expected dense tensors");
  check<DtypeError>(!impl_->requires_grad || is_floating_point(from.dtype),
                    "set_data: a tensor that requires grad cannot become one of ", from.dtype);
  if (!detail::same_memory(*this, other)) ++impl_->replaced;
  static_cast<detail::Elements&>(*impl_) = from;
}

// Defined here, and not in autograd/ with the other members that concern the graph, since `empty`
// calls it.
LOCKSTEP_INLINE const Tensor& Tensor::requires_grad_(bool requires_grad) const {
  check<AutogradError>(get().grad_fn == nullptr || requires_grad,
                       "requires_grad_(false) on the result of a recorded operation: use detach()");
  check<AutogradError>(!requires_grad || !get().sparse,
                       "a sparse tensor cannot require gradients: use to_dense()");
  check<DtypeError>(!requires_grad || is_floating_point(dtype()),
                    "only tensors of floating-point dtype can require gradients, not ", dtype());
  check<AutogradError>(!requires_grad || !is_inference() || detail::autograd_state().inference,
                       "Setting requires_grad=True on inference tensor outside InferenceMode is "
                       "not allowed: a tensor "
                       "of shape ",
                       sizes(), " on ", device(), "; clone() it first");
  impl_->requires_grad = requires_grad;
  return *this;
}

}  // namespace lockstep
