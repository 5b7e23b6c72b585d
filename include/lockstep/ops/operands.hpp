// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

// Checks and preparation of operations' arguments.
namespace lockstep::detail {

// Throws unless both tensors are defined, and on one device.
inline void check_same_device(const char* operation, const char* name_a, const Tensor& a,
                              const char* name_b, const Tensor& b) {
  check_defined(operation, name_a, a);
  check_defined(operation, name_b, b);
  check<DeviceError>(a.device() == b.device(), operation, ": ", name_a, " is on ", a.device(),
                     ", but ", name_b, " is on ", b.device(),
                     "; to() moves one to the other's (what a DataParallel returns is on its "
                     "output_device(); plain Tensor members of a module, layers that its "
                     "visit_members leaves out, and what a lambda or a std::function has captured, "
                     "are neither moved nor replicated)");
}

// The one of two dtypes to which numbers of the other convert with the least loss.
inline Dtype wider(Dtype a, Dtype b) {
  if (is_floating_point(a) != is_floating_point(b)) return is_floating_point(a) ? a : b;
  if (element_size(a) != element_size(b)) return element_size(a) > element_size(b) ? a : b;
  return a == Dtype::boolean ? b : a;
}

// Throws unless both tensors are defined, on one device and of one dtype.
inline void check_same_kind(const char* operation, const char* name_a, const Tensor& a,
                            const char* name_b, const Tensor& b) {
  check_same_device(operation, name_a, a, name_b, b);
  if (a.dtype() == b.dtype()) return;
  fail<DtypeError>(operation, ": ", name_a, " is of dtype ", a.dtype(), ", but ", name_b, " of ",
                   b.dtype(), "; .to(Dtype::", wider(a.dtype(), b.dtype()),
                   ") converts one to the other's");
}

// Throws unless the bias is undefined, or has the weight's dtype and device and a number for each
// of its rows.
inline void check_bias(const char* operation, const Tensor& bias, const Tensor& weight) {
  if (!bias.defined()) return;
  check_same_kind(operation, "the bias", bias, "the weight", weight);
  check<ShapeError>(bias.sizes() == Shape{weight.size(0)}, operation, ": a bias of shape ",
                    bias.sizes(), " does not fit a weight of shape ", weight.sizes());
}

inline void check_floating(const char* operation, const Tensor& x) {
  check_defined(operation, "the tensor", x);
  check<DtypeError>(is_floating_point(x.dtype()), operation,
                    ": expected a floating-point dtype, got ", x.dtype());
}

// Memory for an unrecorded result: `slot`, if that is contiguous, has this shape, dtype and device,
// and shares no memory with what the operation reads; else new memory.
inline Tensor empty_at(const Tensor* slot, std::initializer_list<const Tensor*> reads,
                       const Stream& stream, const Shape& shape, Dtype dtype) {
  const auto apart = [slot](const Tensor* read) {
    return !read->defined() || read->impl()->storage != slot->impl()->storage;
  };
  const bool fits = slot && slot->defined() && slot->dtype() == dtype && slot->sizes() == shape &&
                    slot->device() == stream.device() && slot->is_contiguous() &&
                    all_of(reads, apart);
  return fits ? *slot : empty_on(stream, shape, dtype);
}

// Work space of `count` elements for the host's algorithm, which is freed in stream order when the
// handle is destroyed. Empty on a GPU, whose library allocates its own.
inline Tensor workspace(const Stream& stream, std::int64_t count, Dtype dtype) {
  return empty_on(stream, {stream.device().is_cpu() ? count : 0}, dtype);
}

// What a kernel reads of a tensor with any strides: from its first to its last element.
template <class T>
View<const T> strided_input(const Tensor& tensor) {
  View<const T> view = input<T>(tensor);
  if (view.size > 0) view.size = extent(tensor);
  return view;
}

// packed, input and output for a tensor that may be undefined, which gives an undefined tensor or
// an empty View.
inline Tensor packed_or_undefined(const Tensor& tensor) {
  return tensor.defined() ? packed(tensor) : tensor;
}
template <class T>
View<const T> optional_input(const Tensor& tensor) {
  return tensor.defined() ? input<T>(tensor) : View<const T>{};
}
template <class T>
View<T> optional_output(const Tensor& tensor, const Stream& stream) {
  return tensor.defined() ? output<T>(tensor, stream) : View<T>{};
}

// The matrices of a tensor (its last two dimensions) as a BLAS takes them: rows or columns are
// contiguous, and the others `ld` elements apart.
struct MatrixArgument {
  const Tensor* source;  // must outlive this
  Tensor own;            // a packed copy, if the source cannot be used
  bool transposed;       // columns are contiguous
  std::int64_t ld;
  std::int64_t batch_stride;  // between the matrices of a tensor of three dimensions

  const Tensor& tensor() const { return own.defined() ? own : *source; }
};

// Transposed and sliced matrices are used in place; others are packed, and half precision is
// converted to f32, unrecorded.
inline MatrixArgument as_matrix(const Tensor& tensor) {
  if (is_half_precision(tensor.dtype())) {
    const Tensor wide = widened(tensor);
    MatrixArgument matrix = as_matrix(wide);
    if (!matrix.own.defined()) matrix.own = wide;
    return matrix;
  }
  const std::size_t dims = tensor.sizes().size();
  const auto atleast1 = [](std::int64_t size) { return std::max<std::int64_t>(size, 1); };
  const auto stride = [&](const Tensor& t) { return dims > 2 ? t.strides()[dims - 3] : 0; };
  const std::int64_t rows = tensor.sizes()[dims - 2];
  const std::int64_t cols = tensor.sizes()[dims - 1];
  if (tensor.is_contiguous()) return {&tensor, {}, false, atleast1(cols), stride(tensor)};
  const std::int64_t down = tensor.strides()[dims - 2];
  const std::int64_t along = tensor.strides()[dims - 1];
  if ((along == 1 || cols <= 1) && (down >= atleast1(cols) || rows <= 1)) {
    return {&tensor, {}, false, rows <= 1 ? atleast1(cols) : down, stride(tensor)};
  }
  if ((down == 1 || rows <= 1) && along >= atleast1(rows)) {
    return {&tensor, {}, true, along, stride(tensor)};
  }
  Tensor own = packed(tensor);
  const std::int64_t apart = stride(own);
  return {&tensor, std::move(own), false, atleast1(cols), apart};
}
MatrixArgument as_matrix(const Tensor&&) = delete;  // a temporary would not live long enough

}  // namespace lockstep::detail
