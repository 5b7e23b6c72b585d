// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

namespace lockstep::detail {

LOCKSTEP_INLINE void check_same_device(const char* operation, const char* name_a, const Tensor& a,
                                       const char* name_b, const Tensor& b) {
  check_defined(operation, name_a, a);
  check_defined(operation, name_b, b);
  check<DeviceError>(a.device() == b.device(), operation, ": ", name_a, " is on ", a.device(),
                     ", but ", name_b, " is on ", b.device(),
                     "; to() moves one to the other's (what a DataParallel returns is on its "
                     "output_device(); plain Tensor members of a module, and what a lambda or a "
                     "std::function has captured, are neither moved nor replicated)");
}

LOCKSTEP_INLINE void check_same_kind(const char* operation, const char* name_a, const Tensor& a,
                                     const char* name_b, const Tensor& b) {
  check_same_device(operation, name_a, a, name_b, b);
  check<DtypeError>(a.dtype() == b.dtype(), operation, ": ", name_a, " is of dtype ", a.dtype(),
                    ", but ", name_b, " of ", b.dtype(),
                    "; .to(Dtype::", is_floating_point(b.dtype()) ? b.dtype() : a.dtype(),
                    ") converts one to the other's");
}

LOCKSTEP_INLINE Tensor empty_at(const Tensor* slot, std::initializer_list<const Tensor*> reads,
                                const Stream& stream, const Shape& shape, Dtype dtype) {
  const auto apart = [slot](const Tensor* read) {
    return read->impl()->storage != slot->impl()->storage;
  };
  const bool fits = slot && slot->defined() && slot->dtype() == dtype && slot->sizes() == shape &&
                    slot->device() == stream.device() && slot->is_contiguous() &&
                    all_of(reads, apart);
  return fits ? *slot : empty_on(stream, shape, dtype);
}

LOCKSTEP_INLINE MatrixArgument as_matrix(const Tensor& tensor) {
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
  if ((down == 1 || rows <= 1) && (along >= atleast1(rows) || cols <= 1)) {
    return {&tensor, {}, true, cols <= 1 ? atleast1(rows) : along, stride(tensor)};
  }
  Tensor own = packed(tensor);
  const std::int64_t apart = stride(own);
  return {&tensor, std::move(own), false, atleast1(cols), apart};
}

}  // namespace lockstep::detail
