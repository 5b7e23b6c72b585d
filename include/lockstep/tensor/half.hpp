// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

// How operations compute in f16 and bf16, for which CPUs and CBLAS cannot be relied on to have
// arithmetic: they convert the operands to f32, compute there, and round the result once. A GPU
// gives the same, since it sums the products of half-precision matrices in f32.
namespace lockstep::detail {

// The tensor in f32 if it is of half precision; any other as it is. Not recorded.
inline Tensor widened(const Tensor& x) {
  return is_half_precision(x.dtype()) ? cast(x, Dtype::f32) : x;
}

// The same, made contiguous.
inline Tensor packed_wide(const Tensor& x) {
  return is_half_precision(x.dtype()) ? cast(x, Dtype::f32) : packed(x);
}

// As `packed_wide`, but without a new handle where `x` is contiguous and of another dtype, or
// undefined: then this refers to `x`, which has to live longer.
struct PackedWide : Packed {
  explicit PackedWide(const Tensor& x) : Packed(x, is_as_asked(x) ? Tensor() : packed_wide(x)) {}
  explicit PackedWide(const Tensor&&) = delete;  // a temporary would not live long enough

 private:
  static bool is_as_asked(const Tensor& x) {
    return !x.defined() || (!is_half_precision(x.dtype()) && x.is_contiguous());
  }
};

// The tensor that body(T{}) returns, for the type T that tensors of `dtype` are computed in: float
// for half precision, and the result is rounded to `dtype`; otherwise those of dispatch_floating,
// or of dispatch_numeric. The body reads its operands `widened` or `packed_wide`.
template <bool takes_integers = false, class Body>
Tensor compute_elements(Dtype dtype, const char* operation, const Body& body) {
  if (is_half_precision(dtype)) return cast(body(float{}), dtype);
  if constexpr (takes_integers) {
    return dispatch_numeric(dtype, operation, body);
  } else {
    return dispatch_floating(dtype, operation, body);
  }
}

}  // namespace lockstep::detail
