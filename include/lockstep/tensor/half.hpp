// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

// How operations compute in f16 and bf16: they convert the operands to f32, compute in f32, and
// round the result once, since CPUs and CBLAS may lack arithmetic for these types. A GPU gives the
// same, since it sums products of half-precision matrices in f32.
namespace lockstep::detail {

// The tensor converted to f32 if it has half precision, else itself. Not recorded.
inline Tensor widened(const Tensor& x) {
  return is_half_precision(x.dtype()) ? cast(x, Dtype::f32) : x;
}

// The same, made contiguous.
inline Tensor packed_wide(const Tensor& x) {
  return is_half_precision(x.dtype()) ? cast(x, Dtype::f32) : packed(x);
}

// As `packed_wide`, but refers to `x`, which must outlive it, if it needs no copy or is undefined.
struct PackedWide : Packed {
  explicit PackedWide(const Tensor& x) : Packed(x, needs_no_copy(x) ? Tensor() : packed_wide(x)) {}
  explicit PackedWide(const Tensor&&) = delete;  // a temporary would not live long enough

 private:
  static bool needs_no_copy(const Tensor& x) {
    return !x.defined() || (!is_half_precision(x.dtype()) && x.is_contiguous());
  }
};

// Returns body(T{}), for the type T in which tensors of `dtype` are computed: float for half
// precision, whose result is rounded to `dtype`, else as dispatch_floating or dispatch_numeric. The
// body reads its operands `widened` or `packed_wide`.
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
