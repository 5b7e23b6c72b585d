// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>
#include <initializer_list>

// What operations ask of their arguments.
namespace lockstep::detail {

// Throws unless both tensors are defined, and on one device.
void check_same_device(const char* operation, const char* name_a, const Tensor& a,
                       const char* name_b, const Tensor& b);

// Throws unless both tensors are defined, on one device and of one dtype.
void check_same_kind(const char* operation, const char* name_a, const Tensor& a, const char* name_b,
                     const Tensor& b);

// Memory for the result of an operation that is not recorded: `slot`, if that is contiguous, of
// this shape, dtype and device, and shares no memory with what the operation reads; otherwise new
// memory.
Tensor empty_at(const Tensor* slot, std::initializer_list<const Tensor*> reads,
                const Stream& stream, const Shape& shape, Dtype dtype);

// What a kernel reads of a tensor with any strides: everything from its first to its last element.
template <class T>
View<const T> strided_input(const Tensor& tensor) {
  View<const T> view = input<T>(tensor);
  if (view.size > 0) view.size = extent(tensor);
  return view;
}

// The matrices of a tensor (its last two dimensions) as a BLAS takes them: rows or columns are
// contiguous, the other ones `ld` elements apart.
struct MatrixArgument {
  const Tensor* source;  // it lives longer than this
  Tensor own;            // a packed copy, if the source cannot be taken as it is
  bool transposed;       // columns are contiguous
  std::int64_t ld;
  std::int64_t batch_stride;  // between the matrices of a tensor of three dimensions

  const Tensor& tensor() const { return own.defined() ? own : *source; }
};

// Transposed and sliced matrices are taken as they are; others are packed, and half precision is
// widened to f32, unrecorded.
MatrixArgument as_matrix(const Tensor& tensor);
MatrixArgument as_matrix(const Tensor&&) = delete;  // a temporary would not live long enough

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/operands.ipp>
#endif
