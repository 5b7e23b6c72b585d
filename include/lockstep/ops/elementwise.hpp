// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/elementwise_kernels.hpp>
#include <lockstep/ops/layout.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

// A function of one or two elements, applied to whole tensors.
namespace lockstep::detail {

// f(x) for every element, as a new tensor; the dtypes are In and Out. Where In is float, x may be
// of half precision. Not recorded.
template <class In, class Out, class F>
Tensor map(const Tensor& x, F f) {
  const Tensor from = std::is_same_v<In, float> ? packed_wide(x) : packed(x);
  const Stream stream = current_stream(x.device());
  Tensor result = empty_on(stream, x.sizes(), dtype_of<Out>);
  launch(stream, static_cast<std::size_t>(from.numel()),
         UnaryKernel<In, Out, F>{input<In>(from), output<Out>(result, stream), f});
  return result;
}

// f(a, b) for every pair of elements, the operands stretched to a common shape; both are of dtype
// In (or of half precision where it is float) and on one device. Not recorded.
template <class In, class Out, class F>
Tensor map(const char* operation, const Tensor& a, const Tensor& b, F f) {
  if constexpr (std::is_same_v<In, float>) {
    if (is_half_precision(a.dtype())) return map<In, Out>(operation, widened(a), widened(b), f);
  }
  const Stream stream = current_stream(a.device());
  if (a.is_contiguous() && b.is_contiguous() && a.sizes() == b.sizes()) {
    Tensor result = empty_on(stream, a.sizes(), dtype_of<Out>);
    launch(stream, static_cast<std::size_t>(a.numel()),
           BinaryKernel<In, Out, F>{input<In>(a), input<In>(b), output<Out>(result, stream), f});
    return result;
  }
  Walk<2> walk;
  Tensor result = empty_on(stream, stretch(operation, a, b, walk), dtype_of<Out>);
  launch_call(stream, BroadcastCall<In, Out, F>{strided_input<In>(a), strided_input<In>(b),
                                                output<Out>(result, stream), walk, f});
  return result;
}

// A number that meets tensors of T: an integer tensor takes only what it can hold exactly.
template <class T>
T scalar(const char* operation, double value) {
  if constexpr (std::is_integral_v<T>) {
    constexpr double kLimit = sizeof(T) == 8 ? 0x1p63 : 0x1p31;
    const bool fits = value >= -kLimit && value < kLimit;
    check<DtypeError>(fits && static_cast<double>(static_cast<T>(value)) == value, operation,
                      ": the number ", value, " does not fit a tensor of ", dtype_of<T>,
                      "; convert the tensor first, with to(Dtype::f32)");
  }
  return static_cast<T>(value);
}

}  // namespace lockstep::detail
