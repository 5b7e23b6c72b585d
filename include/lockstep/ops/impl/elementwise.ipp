// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/streams.hpp>
#include <lockstep/ops/elementwise.hpp>
#include <lockstep/ops/layout.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>

namespace lockstep::detail {

LOCKSTEP_INLINE Tensor map_each(const Mapping& mapping, const Tensor& x, const void* f) {
  const Tensor from = mapping.operand == Dtype::f32 ? packed_wide(x) : packed(x);
  const Stream stream = current_stream(x.device());
  Tensor result = empty_on(stream, x.sizes(), mapping.result);
  mapping.launch(
      {stream, input<std::byte>(from), {}, output<std::byte>(result, stream), nullptr, f});
  return result;
}

LOCKSTEP_INLINE Tensor map_pairs(const Mapping& mapping, const char* operation, const Tensor& a,
                                 const Tensor& b, const void* f) {
  if (mapping.operand == Dtype::f32 && is_half_precision(a.dtype())) {
    return map_pairs(mapping, operation, widened(a), widened(b), f);
  }
  const Stream stream = current_stream(a.device());
  if (a.is_contiguous() && b.is_contiguous() && a.sizes() == b.sizes()) {
    Tensor result = empty_on(stream, a.sizes(), mapping.result);
    mapping.launch({stream, input<std::byte>(a), input<std::byte>(b),
                    output<std::byte>(result, stream), nullptr, f});
    return result;
  }
  Walk<2> walk;
  Tensor result = empty_on(stream, stretch(operation, a, b, walk), mapping.result);
  mapping.launch({stream, strided_input<std::byte>(a), strided_input<std::byte>(b),
                  output<std::byte>(result, stream), &walk, f});
  return result;
}

}  // namespace lockstep::detail
